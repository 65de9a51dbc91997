"""What consumers write into the protocol metadata and assignments of their classic groups. Pure.

    subscription  version (i16)  topics ([string])  user data (bytes)  …
    assignment    version (i16)  count (i32)  count × { topic (string)  partitions ([i32]) }  …

Strings have a length of 16 bits, arrays one of 32, and numbers are big-endian. The group works
without this. It tells people and administrative calls what members of protocol type `consumer`
read; whatever is not understood says nothing.
"""

import struct
from collections.abc import Sequence
from typing import Final

from service.groups.assignors import TopicPartition

PROTOCOL_TYPE: Final = "consumer"

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


def subscribed(metadata: bytes) -> list[str]:
    """Return the topics in the metadata of a consumer; none if it is malformed."""
    try:
        count, at = _count(metadata, _I16.size)
        topics = []
        for _ in range(count):
            topic, at = _text(metadata, at)
            topics.append(topic)
    except (struct.error, ValueError):
        return []
    return topics


def assigned(assignment: bytes) -> list[TopicPartition]:
    """Return the partitions in the assignment of a consumer; none if it is malformed."""
    try:
        return _places(assignment, _I16.size)
    except (struct.error, ValueError):
        return []


def owned(metadata: bytes) -> list[TopicPartition]:
    """Return what a consumer says that it reads (version 1 and later); nothing if malformed."""
    try:
        [version] = _I16.unpack_from(metadata, 0)
        count, at = _count(metadata, _I16.size)
        for _ in range(count):
            _, at = _text(metadata, at)
        [length] = _I32.unpack_from(metadata, at)
        at += _I32.size + max(0, length)
        return _places(metadata, at) if version >= 1 else []
    except (struct.error, ValueError):
        return []


def encode_assignment(places: Sequence[TopicPartition]) -> bytes:
    """Return an assignment of version 0, as every consumer reads it."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(int(partition))
    data = _I16.pack(0) + _I32.pack(len(by_topic))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        data += _I16.pack(len(name)) + name + _I32.pack(len(numbers))
        data += struct.pack(f">{len(numbers)}i", *numbers)
    return data + _I32.pack(-1)


def _places(data: bytes, at: int) -> list[TopicPartition]:
    count, at = _count(data, at)
    places: list[TopicPartition] = []
    for _ in range(count):
        topic, at = _text(data, at)
        width, at = _count(data, at)
        numbers = struct.unpack_from(f">{width}i", data, at)
        at += width * _I32.size
        places += [(topic, number) for number in numbers]
    return places


def _count(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of an array, and where its elements begin."""
    [count] = _I32.unpack_from(data, at)
    if not 0 <= count <= len(data):
        raise ValueError(f"an array of {count} elements in {len(data)} bytes")
    return count, at + _I32.size


def _text(data: bytes, at: int) -> tuple[str, int]:
    [length] = _I16.unpack_from(data, at)
    start = at + _I16.size
    if length < 0 or start + length > len(data):
        raise ValueError("a string ends after the data")
    return data[start : start + length].decode(), start + length
