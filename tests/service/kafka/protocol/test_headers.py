"""Frames: what is in front of a body, for requests of every kind, and what cannot be known."""

import struct

import pytest

from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import (
    MalformedFrame,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_header,
)
from service.kafka.protocol.messages.handshake import ApiVersionsRequest, ApiVersionsResponse
from service.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from service.kafka.protocol.messages.produce import ProduceResponse

FRAME = b"".join(
    encode_request(
        Api.METADATA, 13, 7, "größer", MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    )
)[4:]


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
def test_a_request_and_its_response_come_through_in_every_version(key: Api) -> None:
    api = APIS[key]
    for version in api.request.VERSIONS:
        sent = b"".join(encode_request(key, version, -5, "me", api.request()))
        header = read_header(sent[4:])

        assert int.from_bytes(sent[:4]) == len(sent) - 4
        assert (header.key, header.version) == (key, version)
        assert (header.correlation_id, header.client_id) == (-5, "me")
        assert decode_request(key, version, header.body) == api.request()

        back = b"".join(encode_response(key, version, -5, api.response()))
        assert int.from_bytes(back[:4]) == len(back) - 4
        assert decode_response(key, version, back[4:]) == (-5, api.response())


def test_a_client_need_not_have_an_id() -> None:
    sent = b"".join(encode_request(Api.API_VERSIONS, 0, 1, None, ApiVersionsRequest()))

    assert read_header(sent[4:]).client_id is None


def test_of_an_unknown_version_only_the_first_numbers_are_known() -> None:
    header = read_header(struct.pack(">hhi", Api.API_VERSIONS, 99, 3) + b"\xff" * 40)

    assert (header.key, header.version, header.correlation_id) == (18, 99, 3)
    assert header.client_id is None
    assert header.body == b""
    assert read_header(struct.pack(">hhi", 1000, 0, 3)).key == 1000
    assert read_header(struct.pack(">hhi", Api.PRODUCE, 2, 3)).body == b""


def test_the_header_of_a_reply_to_api_versions_has_no_tags() -> None:
    versions = b"".join(encode_response(Api.API_VERSIONS, 4, 1, ApiVersionsResponse()))
    produce = b"".join(encode_response(Api.PRODUCE, 9, 1, ProduceResponse()))

    assert versions[8:10] == b"\0\0"  # The error code; a tag section would be a zero before it.
    assert versions[10] == 1  # No keys.
    assert produce[8:10] == b"\0\x01"  # No tags, no topics.


def test_tags_of_a_header_are_skipped() -> None:
    header = FRAME[:8] + FRAME[8 : 10 + len("größer".encode())] + b"\x02\x05\x01a\x07\x00"
    body = FRAME[11 + len("größer".encode()) :]

    read = read_header(header + body)

    assert read.client_id == "größer"
    assert read.body == body


@pytest.mark.parametrize("size", range(8 + 2 + 8 + 1))
def test_a_header_that_is_cut_is_refused(size: int) -> None:
    with pytest.raises(MalformedFrame):
        read_header(FRAME[:size])


@pytest.mark.parametrize("client_id", [b"\xff\xfe", b"\x80\x00", b"\x00\x02\xff\xff\x00"])
def test_a_client_id_that_is_no_text_is_refused(client_id: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_header(FRAME[:8] + client_id)


def test_what_follows_a_request_is_ignored_as_in_kafka() -> None:
    # Every topic, as librdkafka 2.16 asks for them: three bytes are left of a length it reserved.
    body = bytes.fromhex("00000000010000")

    request = decode_request(Api.METADATA, 13, body)

    assert request.topics is None
    assert not request.allow_auto_topic_creation
