"""Settings of functions: as documented, and the environment wins."""

import re

import pytest

from service.serverless.settings import GATEWAY, gateway_settings, security
from service.settings import Settings
from storage.errors import InvalidConfig
from tests.docs.markdown import ROOT, table


def test_other_defaults_are_in_the_table() -> None:
    documented = {}
    for names, value, _ in table(ROOT / "docs/lambda.md", "## Variables"):
        for name in re.findall(r"`RIACHO_(\w+)`", names):
            documented[name.lower()] = value.strip("`")
    assert documented == {name: str(value) for name, value in GATEWAY.items()}
    assert documented.keys() <= Settings.model_fields.keys()


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gateway_settings().table_batch_bytes_max == 4096
    assert gateway_settings().freezes
    monkeypatch.setenv("RIACHO_TABLE_BATCH_BYTES_MAX", "0")
    monkeypatch.setenv("RIACHO_FREEZES", "false")
    assert gateway_settings().table_batch_bytes_max == 0
    assert not gateway_settings().freezes


def test_a_function_must_be_told_where_records_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RIACHO_ZONES", "RIACHO_METADATA", "RIACHO_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "riacho")
    with pytest.raises(InvalidConfig, match="RIACHO_ZONES and RIACHO_METADATA must say"):
        gateway_settings()
    monkeypatch.setenv("RIACHO_ZONES", "a=s3://bucket")
    with pytest.raises(InvalidConfig, match="keeps nothing: RIACHO_METADATA must say"):
        gateway_settings()
    monkeypatch.setenv("RIACHO_METADATA", "dynamodb://table")
    assert gateway_settings().zones == "a=s3://bucket"


def test_a_function_is_closed_unless_somebody_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RIACHO_SECURITY", "RIACHO_INSECURE", "AWS_LAMBDA_FUNCTION_NAME"):
        monkeypatch.delenv(name, raising=False)
    assert security() == ""
    monkeypatch.setenv("RIACHO_SECURITY", "off")
    assert security() == "off"
    monkeypatch.delenv("RIACHO_SECURITY")

    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "riacho")
    assert security() == "on"
    monkeypatch.setenv("RIACHO_SECURITY", "off")
    with pytest.raises(InvalidConfig, match="RIACHO_SUPER_USERS; or set RIACHO_INSECURE=1"):
        security()
    monkeypatch.setenv("RIACHO_INSECURE", "0")
    with pytest.raises(InvalidConfig):
        security()
    monkeypatch.setenv("RIACHO_INSECURE", "1")
    assert security() == "off"
