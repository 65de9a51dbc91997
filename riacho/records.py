"""Records in the client API: what `send` takes, what `poll` returns."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias


class ProtobufMessage(Protocol):
    """A message of a generated class, for a producer that serializes such."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 - as Protobuf calls it.


Payload: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | str
    | int
    | float
    | list[Any]
    | dict[str, Any]
    | ProtobufMessage
    | None
)
"""A key or a value: bytes unchanged, text as UTF-8, other JSON values serialized, None as null. Or
what the producer's serializer takes."""

Headers: TypeAlias = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]
"""Headers by name, or as pairs where order and repetition matter."""

HeaderPairs: TypeAlias = tuple[tuple[str, bytes | None], ...]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written. With `acks=0` the offset is unknown and `offset` is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log. `timestamp` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs = ()

    def text(self) -> str:
        """Return the value as text; null is the empty text."""
        return "" if self.value is None else self.value.decode()

    def json(self) -> Any:
        """Return the value parsed as JSON; null is None."""
        return None if self.value is None else json.loads(self.value)

    def key_text(self) -> str:
        """Return the key as text; null is the empty text."""
        return "" if self.key is None else self.key.decode()


def payload_bytes(payload: Payload) -> bytes | None:
    """Return `payload` as bytes, encoded as the gateway encodes the same JSON value."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    try:
        return json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
    except TypeError as error:
        name = type(payload).__name__
        raise TypeError(f"cannot send a {name}; give bytes, text or plain JSON values") from error


def header_pairs(headers: Headers | None) -> HeaderPairs:
    """Return `headers` in order, their values as bytes."""
    if not headers:
        return ()
    pairs: Iterable[tuple[str, str | bytes | None]]
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, payload_bytes(value)) for name, value in pairs)


def topic_partitions(pairs: Iterable[tuple[str, int]]) -> list[TopicPartition]:
    """Return `pairs` as partitions, each once, in order."""
    return list(dict.fromkeys(TopicPartition(topic, partition) for topic, partition in pairs))


def topic_names(topics: str | Sequence[str]) -> list[str]:
    """Return `topics` as a list, each once; a single name is allowed."""
    return [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
