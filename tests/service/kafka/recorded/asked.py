"""A question of the recording, and what is kept of an answer: codes and shape, no ids or texts."""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from service.kafka.protocol.notation import Message, Struct

CLOSED = "closed"
"""The connection was closed instead of an answer."""


@dataclass(frozen=True)
class Ask:
    version: int
    request: Message


Talk: TypeAlias = Callable[[], Generator[Ask, Any, None]]
"""Yields requests, and gets their answers: the last one is kept."""


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
