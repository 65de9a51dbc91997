"""What a client of one language writes, those of others read; both write the same bytes."""

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.kafka_programs.schemas.exchange import FORMS, client, consumed, key_of
from tests.kafka_programs.schemas.vectors import CASES, REFERRED, Case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def registered(url: str, cases: Sequence[Case]) -> dict[str, int]:
    """Register what cases refer to, then their schemas; return their ids."""
    for subject, (kind, text) in REFERRED.items():
        body = {"schema": text, "schemaType": kind}
        path = f"{url}/subjects/{quote(subject, safe='')}/versions"
        httpx.post(path, json=body, timeout=60).raise_for_status()
    ids = {}
    for case in cases:
        httpx.post(f"{url}/v1/topics", json={"name": case.name, "partitions": 1}, timeout=60)
        answer = httpx.post(f"{url}/subjects/{case.subject}/versions", json=case.body, timeout=60)
        ids[case.name] = answer.raise_for_status().json()["id"]
    return ids


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("python", "go"),
        ("python", "javascript"),
        ("go", "javascript"),
        ("http", "python"),
        ("http", "go"),
        ("http", "javascript"),
    ],
)
def test_each_reads_what_the_other_writes(
    gateway: GatewayProcess, bootstrap: str, tmp_path: Path, one: str, other: str
) -> None:
    """One finds the registry at the address of the gateway, the other below `/registry`."""
    cases = [case.on(f"{one}-{other}-{case.name}") for case in CASES]
    ids = registered(gateway.url, cases)
    clients = {
        one: client(one, bootstrap, gateway.url, tmp_path),
        other: client(other, bootstrap, f"{gateway.url}/registry", tmp_path),
    }

    for each in clients.values():
        each.write(cases)

    keys = {
        case.name: [f"{name} {form}" for name, each in clients.items() for form in each.forms(case)]
        for case in cases
    }
    count = sum(len(each) for each in keys.values())
    for each in clients.values():
        expected = {
            case.name: dict.fromkeys(keys[case.name], each.expected(case)) for case in cases
        }
        assert each.read(cases, count) == expected
    check_bytes(bootstrap, cases, ids, count)
    for case in cases:
        # However they say it, it is one schema.
        versions = httpx.get(f"{gateway.url}/subjects/{case.subject}/versions").json()
        assert versions == [1], case.name


def check_bytes(bootstrap: str, cases: Sequence[Case], ids: dict[str, int], count: int) -> None:
    """Both wrote the same bytes, but for spaces in JSON; with ids before them, and in headers."""
    types = {case.name: case.type for case in cases}
    seen: dict[str, dict[str, set[bytes]]] = {case.name: {} for case in cases}
    for each in consumed(bootstrap, types, count):
        topic, form, value = str(each.topic()), key_of(each).split()[1], each.value()
        assert isinstance(value, bytes)
        if form == "prefix":
            assert value[:5] == b"\0" + ids[topic].to_bytes(4)
            value = value[5:]
        else:
            [(name, header)] = each.headers() or []
            assert name == "__value_schema_id"
            assert isinstance(header, bytes)
            assert header[0] == 1
            # The index of the message comes after the GUID.
            value = header[17:] + value
        if types[topic] == "JSON":
            value = json.dumps(json.loads(value)).encode()
        seen[topic].setdefault(form, set()).add(value)
    for topic, forms in seen.items():
        assert {form: len(each) for form, each in forms.items()} == dict.fromkeys(FORMS, 1), topic
        assert forms["prefix"] == forms["header"], topic
