"""`riacho connect …` against a gateway that runs no connectors: configurations, tables, codes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from riacho import Connectors, ConnectRefused
from riacho.cli.connect.files import parse_properties
from tests.commands import riacho
from tests.gateway import GatewayProcess, start_gateway

CONFIG = {"connector.class": "FileStreamSource", "topic": "t", "file": "in.txt"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path = tmp_path_factory.mktemp("connect")
    env = {"RIACHO_CONNECT": "off", "RIACHO_CONNECT_FILES": str(path)}
    with start_gateway(path, env=env) as gateway:
        yield gateway


def told(*args: str, gateway: GatewayProcess, **rest: Any) -> str:
    return riacho("connect", *args, url=gateway.url, **rest).stdout.decode()


def document(*args: str, gateway: GatewayProcess, **rest: Any) -> Any:
    return json.loads(told(*args, "-o", "json", gateway=gateway, **rest))


def test_connectors_come_from_files_and_options(gateway: GatewayProcess, tmp_path: Path) -> None:
    whole, alone, java = (tmp_path / name for name in ("whole.json", "alone.json", "c.properties"))
    whole.write_text(json.dumps({"name": "a", "config": {**CONFIG, "tasks.max": 1}}))
    alone.write_text(json.dumps(CONFIG))
    java.write_text("# as of Kafka\nname=c\n" + "".join(f"{k} = {v}\n" for k, v in CONFIG.items()))

    assert document("create", str(whole), gateway=gateway)["config"]["tasks.max"] == "1"
    told("create", str(alone), "--name", "b", "--state", "stopped", gateway=gateway)
    told("apply", str(java), "-c", "tasks.max=2", gateway=gateway)
    told("apply", "-", gateway=gateway, stdin=java.read_bytes())
    assert document("show", "c", gateway=gateway)["config"] == {**CONFIG, "name": "c"}
    lines = told("list", gateway=gateway).splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "CLASS", "STATE", "TASKS", "FAILED"]
    assert [line.split()[:4] for line in lines[1:]] == [
        ["a", "source", "FileStreamSource", "UNASSIGNED"],
        ["b", "source", "FileStreamSource", "STOPPED"],
        ["c", "source", "FileStreamSource", "UNASSIGNED"],
    ]
    assert "file" in told("show", "c", gateway=gateway)

    told("create", str(whole), gateway=gateway, code=1)
    told("create", str(alone), gateway=gateway, code=2)
    told("create", gateway=gateway, code=2)
    told("create", str(tmp_path / "none"), gateway=gateway, code=2)
    told("delete", "a", gateway=gateway, code=2)
    for name in "abc":
        told("delete", name, "--yes", gateway=gateway)
    assert document("list", gateway=gateway) == {}


def test_states_and_offsets_are_shown_and_changed(gateway: GatewayProcess) -> None:
    options = [text for key, value in CONFIG.items() for text in ("-c", f"{key}={value}")]
    told("create", "-c", "name=s", *options, gateway=gateway)
    for command, state in (("pause", "PAUSED"), ("resume", "UNASSIGNED"), ("stop", "STOPPED")):
        told(command, "s", gateway=gateway)
        assert document("status", "s", gateway=gateway)["connector"]["state"] == state
    assert told("status", "s", gateway=gateway).splitlines()[1].split()[:2] == [
        "connector",
        "STOPPED",
    ]
    place = {"partition": {"filename": "in.txt"}, "offset": {"position": 3}}
    assert document("offsets", "s", "--set", json.dumps([place]), gateway=gateway) == [place]
    assert '{"position": 3}' in told("offsets", "s", gateway=gateway)
    assert document("offsets", "s", "--reset", gateway=gateway) == []
    told("offsets", "s", "--set", "[1]", gateway=gateway, code=2)
    told("restart", "s", "--failed", gateway=gateway)
    told("delete", "s", "-y", gateway=gateway)
    told("status", "s", gateway=gateway, code=1)


def test_configurations_are_validated_and_keys_listed(gateway: GatewayProcess) -> None:
    good = ("-c", "connector.class=FileStreamSource", "-c", "topic=t", "-c", "file=x")
    told("validate", *good, gateway=gateway)
    wrong = told("validate", *good, "-c", "topci=u", gateway=gateway, code=1)
    assert "did you mean 'topic'?" in wrong
    assert document("validate", *good, "-c", "tasks.max=x", gateway=gateway, code=1)["error_count"]
    told("validate", "-c", "topic=t", gateway=gateway, code=2)
    assert "FileStreamSink" in told("plugins", gateway=gateway)
    assert "InsertField$Value" in told("plugins", "--all", gateway=gateway)
    keys = {each["name"] for each in document("plugins", "FileStreamSource", gateway=gateway)}
    assert {"file", "topic", "tasks.max"} <= keys


def test_programs_can_do_the_same(gateway: GatewayProcess) -> None:
    with Connectors(gateway.url) as connectors:
        assert connectors.create("p/1", CONFIG, initial_state="STOPPED")["name"] == "p/1"
        assert connectors.apply("p/1", {**CONFIG, "topic": "u"})["config"]["topic"] == "u"
        assert connectors.describe("p/1")["tasks"] == []
        with pytest.raises(ConnectRefused) as refused:
            connectors.create("p/1", CONFIG)
        assert refused.value.__dict__["status"] == 409
        connectors.delete("p/1")
        with pytest.raises(ConnectRefused, match="Connector p/1 not found"):
            connectors.status("p/1")


def test_properties_are_read_as_java_reads_them() -> None:
    text = "a=1\n! no\nb : two\\\n   more\nc\\=d=\\u0041\\t.\n\n  e  5\nf=x=y"
    assert parse_properties(text) == {
        "a": "1",
        "b": "twomore",
        "c=d": "A\t.",
        "e": "5",
        "f": "x=y",
    }
