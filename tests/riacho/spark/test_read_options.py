"""Options of a read: those of Spark's Kafka source, checked before anything is read."""

import pytest

from riacho.http.identity import Credentials
from riacho.records import TopicPartition
from riacho.spark.read.options import Boundary, ReadOptions, batch_options, stream_options
from riacho.spark.write.options import parse_batch
from storage.errors import InvalidConfig

BASE = {"url": "http://gateway:8080", "subscribe": "a"}


def batch(**given: str) -> ReadOptions:
    return batch_options(BASE | given)


def test_a_job_moves_over_by_changing_the_format() -> None:
    options = batch_options(
        {
            "kafka.bootstrap.servers": "gateway:8080,other:8080",
            "kafka.group.id": "g",
            "kafkaConsumer.pollTimeoutMs": "1000",
            "fetchOffset.numRetries": "3",
            "subscribe": "b, a",
            "startingoffsets": "earliest",
            "failondataloss": "FALSE",
        }
    )

    assert options.url == "http://gateway:8080"
    assert options.subscription.names == ("a", "b")
    assert not options.fail_on_data_loss


def test_a_time_is_preferred_to_times_and_those_to_offsets() -> None:
    times = '{"a": {"0": 5}}'
    zero = TopicPartition("a", 0)

    assert batch().start == Boundary(end="earliest")
    assert batch(startingOffsets='{"a": {"0": -2}}').start == Boundary(offsets={zero: -2})
    assert batch(startingOffsetsByTimestamp=times, startingOffsets="earliest").start == Boundary(
        times_ms={zero: 5}
    )
    assert batch(endingTimestamp="7", endingOffsetsByTimestamp=times).end == Boundary(at_ms=7)


def test_a_stream_begins_at_the_end() -> None:
    options = stream_options(BASE | {"maxOffsetsPerTrigger": "10", "maxTriggerDelay": "2m"})

    assert options.start == Boundary(end="latest")
    assert options.max_offsets_per_trigger == 10
    assert options.max_trigger_delay_ms == 120_000


def test_a_pattern_means_whole_names() -> None:
    options = batch_options({"url": "http://g", "subscribePattern": "a.|b"})

    assert options.subscription.matching(["a", "a1", "b", "bc"]) == ["a1", "b"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "no option 'kafka.sasl.mechanism'"),
        ({"subscribe": " , "}, "names no topic"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign contradict"),
        ({"kafka.bootstrap.servers": "x"}, "contradict each other"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "cannot have -1"),
        ({"startingOffsets": '{"a": 3}'}, "startingOffsets cannot be read; it looks like"),
        ({"startingOffsets": "first"}, "earliest, latest or"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"startingTimestamp": "soon"}, "startingTimestamp is 'soon'"),
        ({"startingOffsetsByTimestamp": "{}"}, "names no partition"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"minPartitions": "0"}, "whole number from 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxOffsetsPerTrigger": "5"}, "for streaming queries only"),
        ({"user": "id"}, "user and password need each other"),
        ({"clientKey": "key.pem"}, "clientKey says nothing without clientCert"),
        ({"token": "x", "user": "id", "password": "y"}, "exclude each other"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        batch(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": "latest"}, "for batch queries only"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "more than"),
        ({"maxTriggerDelay": "long"}, "looks like 500ms"),
    ],
)
def test_what_is_wrong_with_a_stream_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        stream_options(BASE | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscribe": "a"}, "where is the gateway"),
        ({"url": "http://g"}, "which topics"),
        ({"url": "http://g", "assign": '["a"]'}, "assign cannot be read"),
        ({"url": "http://g", "subscribePattern": "("}, "no regular expression"),
    ],
)
def test_what_is_missing_is_said(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        batch_options(given)


def test_credentials_are_options_for_executors_without_the_environment() -> None:
    files = {"caFile": "ca.pem", "clientCert": "cert.pem", "clientKey": "key.pem"}

    found = batch(user="id", password="hush", **files).credentials

    assert found == Credentials(
        basic=("id", "hush"), ca_file="ca.pem", client_cert=("cert.pem", "key.pem")
    )
    assert batch(token="hush").credentials == Credentials(token="hush")
    assert parse_batch({"url": "https://g", "token": "hush"}).credentials.token == "hush"
    assert "hush" not in repr(batch(user="id", password="hush"))
