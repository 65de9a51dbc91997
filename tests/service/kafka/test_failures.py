"""The errors of Kafka's clients, checked for every class there is or will be."""

import logging
from collections.abc import Iterator

import pytest

from service.kafka.failures import _CODES, _PASSING, Asked, code_of
from service.kafka.protocol.error_codes import ErrorCode
from storage.errors import (
    Conflict,
    Corrupt,
    HeadGone,
    OutcomeUnknown,
    OutOfOrderSequence,
    QuotaExceeded,
    Rejected,
    RiachoError,
    ShuttingDown,
    StoreLocked,
    StoreUnavailable,
    Unavailable,
)

RETRIABLE = {
    Asked.PARTITION: {"NOT_LEADER_OR_FOLLOWER", "KAFKA_STORAGE_ERROR", "NOT_ENOUGH_REPLICAS"},
    Asked.COORDINATOR: {"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_ENOUGH_REPLICAS"},
    Asked.ADMIN: {
        "REQUEST_TIMED_OUT",
        "NOT_CONTROLLER",
        "THROTTLING_QUOTA_EXCEEDED",
        "NOT_ENOUGH_REPLICAS",
    },
}
"""What clients try again without looking whether anything was written."""


def every_kind(root: type[RiachoError] = RiachoError) -> Iterator[type[RiachoError]]:
    for kind in root.__subclasses__():
        # Errors of jobs meet no client.
        if not kind.__module__.startswith(("service.jobs", "tests")):
            yield kind
        yield from every_kind(kind)


def test_every_error_has_a_code() -> None:
    for kind in every_kind():
        assert any(above in _CODES or above in _PASSING for above in kind.__mro__), kind


@pytest.mark.parametrize("asked", Asked)
def test_what_passes_is_tried_again(asked: Asked) -> None:
    for kind in [Unavailable, *every_kind(Unavailable)]:
        error: RiachoError = QuotaExceeded("", 5) if kind is QuotaExceeded else kind("")
        assert code_of(error, asked).name in RETRIABLE[asked], kind


def test_codes_are_those_of_the_errors_where_kafka_has_them() -> None:
    names = set(ErrorCode.__members__)
    for kind in [*every_kind(Rejected), *every_kind(Conflict)]:
        if kind in _CODES and "code" in vars(kind) and kind.code in names:
            assert _CODES[kind].name == kind.code


def test_who_cannot_know_whether_it_was_written_is_told_so() -> None:
    assert code_of(OutcomeUnknown("")) == ErrorCode.REQUEST_TIMED_OUT


def test_a_leaf_without_a_line_has_the_code_of_its_family() -> None:
    assert code_of(HeadGone("k")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(StoreLocked("")) == code_of(StoreUnavailable(""))
    assert code_of(ShuttingDown(""), Asked.COORDINATOR) == ErrorCode.NOT_COORDINATOR
    assert code_of(OutOfOrderSequence("")) == 45


def test_damage_and_surprises_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "riacho.error"):
        assert code_of(Corrupt("a bit flipped")) == ErrorCode.CORRUPT_MESSAGE
        assert code_of(ZeroDivisionError()) == ErrorCode.UNKNOWN_SERVER_ERROR

    assert [record.message for record in caplog.records] == [
        "stored data is damaged",
        "unexpected error",
    ]
