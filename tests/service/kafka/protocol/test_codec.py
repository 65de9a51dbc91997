"""Every message in every version is read as it was written, and as kio reads and writes it."""

from random import Random

import pytest

from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import decode, encode
from service.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from service.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from service.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from service.kafka.protocol.notation import Message
from tests.service.kafka.protocol.instances import MESSAGES, instance
from tests.service.kafka.protocol.kio_oracle import (
    assert_same,
    kio_class,
    kio_reads,
    kio_writes,
    plain_kio,
    plain_ours,
)

each_message = pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)


def body(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


@each_message
def test_a_message_is_read_as_it_was_written(message: type[Message]) -> None:
    for version in message.VERSIONS:
        for seed in range(10):
            made = instance(message, version, Random(f"{message.__name__} {version} {seed}"))

            assert decode(message, version, body(made, version)) == made


@each_message
def test_a_message_without_values_is_as_by_default(message: type[Message]) -> None:
    for version in message.VERSIONS:
        assert decode(message, version, body(message(), version)) == message()


@each_message
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(message: type[Message]) -> None:
    for version in message.VERSIONS:
        kio_type = kio_class(message, version)
        for seed in range(4):
            made = instance(message, version, Random(f"{message.__name__} {version} {seed}"))

            read = kio_reads(kio_type, body(made, version))
            again = decode(message, version, kio_writes(read))

            where = f"{message.__name__} v{version}"
            assert_same(plain_ours(made, version), plain_kio(read), where)
            assert_same(plain_ours(again, version), plain_kio(read), where)


def test_fields_that_a_version_lacks_are_not_written() -> None:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)

    assert body(request, 1) == b"\xff\xff\xff\xff"
    assert decode(MetadataRequest, 1, body(request, 1)).allow_auto_topic_creation


def test_large_records_are_sent_as_they_are() -> None:
    batches = memoryview(bytes(10_000))
    partition = PartitionData(records=[batches, b"small", batches])
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])

    pieces = encode(response, 12)

    assert [each for each in pieces if each is batches] == [batches, batches]
    read = decode(FetchResponse, 12, b"".join(pieces)).responses[0].partitions[0].records
    assert read == bytes(10_000) + b"small" + bytes(10_000)


def test_records_that_were_read_are_a_view_of_the_frame() -> None:
    partition = PartitionProduceData(records=bytes(5000))
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[partition])])
    frame = body(request, 9)

    records = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records

    assert isinstance(records, memoryview)
    assert records.obj is frame


def test_a_value_that_cannot_be_written_is_named() -> None:
    with pytest.raises(ValueError, match=r"ProduceRequest v9: acks: .*32767"):
        encode(ProduceRequest(acks=70_000), 9)
    with pytest.raises(ValueError, match=r"MetadataResponse v8: topics\.name: .*NoneType"):
        encode(MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 8)
    with pytest.raises(ValueError, match=r"topics\.topic_id: a UUID of 3 bytes|topics.*UUID"):
        encode(MetadataResponse(topics=[MetadataResponseTopic(name="a", topic_id=b"abc")]), 12)


def test_an_api_has_the_number_and_the_versions_of_its_messages() -> None:
    for key, api in APIS.items():
        assert api.request.KEY == api.response.KEY == api.key == key
        assert api.request.VERSIONS == api.response.VERSIONS
        assert api.versions.last == api.request.VERSIONS.last
    # Older librdkafka does not compress where version 0 is not offered.
    assert APIS[Api.PRODUCE].versions.first == 0
    assert not APIS[Api.PRODUCE].speaks(2)
