"""Bytes of an attacker: each body is read, or refused with one error that says where."""

import tracemalloc
from random import Random
from typing import Any

import pytest

from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import (
    MalformedFrame,
    decode,
    encode,
    encode_request,
    read_header,
)
from service.kafka.protocol.messages.configs import AlterConfigsRequest
from service.kafka.protocol.messages.metadata import MetadataRequest
from service.kafka.protocol.messages.produce import ProduceRequest
from service.kafka.protocol.messages.topics import DeleteTopicsRequest
from service.kafka.protocol.notation import Message
from service.kafka.protocol.wire import ELEMENTS_MAX, uvarint_bytes
from tests.service.kafka.protocol.damage import damaged
from tests.service.kafka.protocol.instances import instance

SPARE_BYTES = 64 * 1024
FACTOR = 150
"""Bytes of memory for a byte of a frame: a struct of three bytes is an object, and an item."""


def outcome(message: type[Message], version: int, body: bytes) -> Any:
    try:
        return decode(message, version, body)
    except MalformedFrame as error:
        return str(error)


def taken_bytes(message: type[Message], version: int, body: bytes) -> int:
    tracemalloc.start()
    try:
        outcome(message, version, body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
def test_damaged_requests_are_read_or_refused(key: Api) -> None:
    message = APIS[key].request
    for version in message.VERSIONS:
        random = Random(f"{key} {version}")
        valid = [b"".join(encode(instance(message, version, random), version)) for _ in range(4)]
        for _ in range(40):
            found = outcome(message, version, damaged(random, valid))
            assert not isinstance(found, str) or found.startswith(f"{message.__name__} v{version}")
        for _ in range(10):
            outcome(message, version, random.randbytes(random.randrange(60)))


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
def test_a_request_that_is_cut_is_refused(key: Api) -> None:
    message = APIS[key].request
    version = message.VERSIONS.last
    whole = b"".join(encode(instance(message, version, Random(1)), version))
    for size in range(0, len(whole), max(1, len(whole) // 40)):
        with pytest.raises(MalformedFrame):
            decode(message, version, whole[:size])
    with pytest.raises(MalformedFrame, match="behind the end"):
        decode(message, version, whole + b"\0")


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
def test_lengths_that_lie_take_no_memory(key: Api) -> None:
    message = APIS[key].request
    for version in {message.VERSIONS.first, message.VERSIONS.last}:
        random = Random(f"{key} {version}")
        valid = b"".join(encode(instance(message, version, random), version))
        outcome(message, version, valid)  # Compiles the reader.
        for length in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\x03"):
            for at in range(0, len(valid), max(1, len(valid) // 8)):
                body = valid[:at] + length + valid[at + len(length) :]
                assert taken_bytes(message, version, body) < SPARE_BYTES + FACTOR * len(body)


def test_five_bytes_that_end_other_processes_are_refused() -> None:
    with pytest.raises(MalformedFrame, match=r"MetadataRequest v13: topics: a length of 429496729"):
        decode(MetadataRequest, 13, b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\xff\xff\xff\xff\xff\x01", "more than five bytes"),
        (b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
        (b"\x02" + bytes(16) + b"\x02\xff\x00\0\0\0", "invalid start byte"),
        (b"\x00\x01\x00\x05", "5 tagged fields in 0 bytes"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        decode(MetadataRequest, 13, body)


def test_null_is_refused_where_a_version_has_none() -> None:
    with pytest.raises(MalformedFrame, match="MetadataRequest v0: topics: null"):
        decode(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert decode(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None


def test_unknown_tags_are_skipped_and_known_ones_have_the_size_they_say() -> None:
    # No topics, three booleans' worth of fields, then one unknown tag of two bytes.
    request = decode(MetadataRequest, 13, b"\x01\x01\x00\x01\x63\x02ab")
    assert request == MetadataRequest(topics=[])


def test_a_frame_holds_a_bounded_number_of_elements() -> None:
    """Each element of three bytes becomes an object: a frame of 100 MiB would take gigabytes."""
    many = (ELEMENTS_MAX + 1).to_bytes(4)
    with pytest.raises(MalformedFrame, match="of at most"):
        decode(DeleteTopicsRequest, 1, many + bytes(2 * (ELEMENTS_MAX + 1) + 4))


def test_many_small_structs_take_memory_in_proportion() -> None:
    count = 20_000
    config = b"\x01\x01\x00"
    head = b"\x02\x02\x01" + uvarint_bytes(count)
    body = head + config * (count - 1) + b"\x00\x00\x00"
    assert len(decode(AlterConfigsRequest, 2, body).resources[0].configs) == count - 1

    assert taken_bytes(AlterConfigsRequest, 2, body) < SPARE_BYTES + FACTOR * len(body)


def test_records_are_not_copied() -> None:
    records = bytes(10 * 1024 * 1024)
    head = b"\x00\xff\xff\x00\x00\x00\x00\x02\x02t\x02\x00\x00\x00\x01"
    length = len(records) + 1
    size = bytes(
        [length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, length >> 21]
    )
    body = head + size + records + b"\0\0\0"
    decode(ProduceRequest, 9, body)

    assert taken_bytes(ProduceRequest, 9, body) < SPARE_BYTES


def test_tagged_fields_count_as_elements() -> None:
    """Nobody knows them, but each takes a step: a frame of 100 MiB would take half a minute."""
    many = ELEMENTS_MAX + 1
    with pytest.raises(MalformedFrame, match="of at most"):
        decode(MetadataRequest, 13, b"\x01\x01\x00" + uvarint_bytes(many) + b"\x63\0" * many)
    head = b"".join(encode_request(Api.METADATA, 13, 1, None, MetadataRequest()))[4:14]
    with pytest.raises(MalformedFrame, match="tagged fields before the body"):
        read_header(head + uvarint_bytes(many) + b"\x63\0" * many)
