"""What kio, another implementation, reads in our bytes and writes for them.

It is never given bytes that somebody damaged: some of them end the process.
"""

import datetime as dt
import io
import uuid
from dataclasses import fields, is_dataclass
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from service.kafka.protocol.notation import NO_UUID, Message, Struct

Plain = dict[str, "Plain"] | list["Plain"] | str | int | float | bytes | None


def kio_class(message: type[Message], version: int) -> Any:
    """Return kio's class for one version of `message`."""
    name = message.__name__
    if message.KEY < 0:
        return _embedded(name, version)
    kind = EntityType.request if name.endswith("Request") else EntityType.response
    return getattr(load_payload_module(message.KEY, version, kind), name)


def _embedded(name: str, version: int) -> Any:
    from kio.index import load_entity_module

    folder = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    return getattr(load_entity_module(folder, version, EntityType.data), name)


def kio_reads(kio_type: Any, body: bytes) -> Any:
    """Return kio's message in all of `body`, which is ours and not damaged."""
    made, size = entity_reader(kio_type)(body, 0)
    assert size == len(body), (kio_type, size, len(body))
    return made


def kio_writes(made: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(made))(buffer, made)
    return buffer.getvalue()


def plain_kio(value: Any) -> Any:
    """Return kio's message as names and simple values."""
    if is_dataclass(value):
        return {each.name: plain_kio(getattr(value, each.name)) for each in fields(value)}
    match value:
        case tuple() | list():
            return [plain_kio(each) for each in value]
        case dt.timedelta():
            return value // dt.timedelta(milliseconds=1)
        case dt.datetime():
            return (value - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
        case uuid.UUID():
            return value.bytes
    return value


def plain_ours(value: Any, version: int) -> Any:
    """Return our message as `plain_kio` does: with the fields that the version has."""
    if isinstance(value, Struct):
        there = [each for each in type(value).FIELDS if version in each.versions]
        return {each.name: plain_ours(getattr(value, each.name), version) for each in there}
    if isinstance(value, list):
        return [plain_ours(each, version) for each in value]
    return bytes(value) if isinstance(value, memoryview) else value


def assert_same(ours: Any, kios: Any, path: str) -> None:
    """Compare two plain values; kio leaves units out of names, and makes ids that are zero None."""
    if isinstance(ours, dict) and isinstance(kios, dict):
        short = {name.removesuffix("_ms"): value for name, value in ours.items()}
        assert list(short) == list(kios) or sorted(short) == sorted(kios), f"{path}: names"
        for name, value in short.items():
            assert_same(value, kios[name], f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(kios, list):
        assert len(ours) == len(kios), path
        for number, (our, kio) in enumerate(zip(ours, kios, strict=True)):
            assert_same(our, kio, f"{path}[{number}]")
    elif ours == NO_UUID or ours is None:
        assert not kios or kios == NO_UUID or isinstance(kios, dict), f"{path}: {kios}"
    else:
        assert ours == kios, f"{path}: {ours!r} is not {kios!r}"
