"""A question of the recording, and what is kept of an answer: codes and shape, no ids or texts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.kafka.protocol.notation import Message, Struct

CLOSED = "closed"
"""The connection was closed instead of an answer."""


@dataclass(frozen=True)
class Ask:
    version: int
    request: Message


@dataclass(frozen=True)
class Numbered:
    """Batches of a producer with a new id: their epochs and sequences. The last answer is kept."""

    batches: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Raw:
    """A frame, without its size, that is no request."""

    key: int
    version: int
    body: bytes


def codes(answer: Message) -> dict[str, int]:
    """Return all error codes of an answer by where they are, and how long its arrays are."""
    return dict(_codes(answer, ""))


def _codes(value: Struct, path: str) -> Iterator[tuple[str, int]]:
    for each in type(value).FIELDS:
        found: Any = getattr(value, each.name)
        where = f"{path}{each.name}"
        if each.name.endswith("error_code"):
            yield where, int(found)
        elif isinstance(found, list) and each.name not in NOT_COMPARED:
            for number, item in enumerate(found):
                if isinstance(item, Struct):
                    yield from _codes(item, f"{where}[{number}].")


NOT_COMPARED = {"node_endpoints", "configs", "api_keys", "brokers"}
"""What a cluster has, and not what it answers."""
