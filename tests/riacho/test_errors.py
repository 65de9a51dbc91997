"""From replies to errors, and when to try again."""

import json
from typing import Any

import pytest

from riacho.errors import (
    GatewayUnreachable,
    SchemaRefused,
    error_of,
    new_error,
    retry_after_s_of,
)
from riacho.http.retries import Backoff
from storage.errors import (
    IncompatibleSchema,
    InvalidSchemaText,
    OffsetOutOfRange,
    OutcomeUnknown,
    Overloaded,
    Rejected,
    RiachoError,
    TopicExists,
    Unauthenticated,
    Unauthorized,
    Unavailable,
    UnknownSchema,
)

PROBLEM = {"content-type": "application/problem+json"}


def reply(status: int, **fields: object) -> Any:
    return error_of(status, PROBLEM, json.dumps(fields).encode())


def test_a_problem_becomes_the_class_of_its_code() -> None:
    error = reply(
        409,
        code="TOPIC_ALREADY_EXISTS",
        detail="topic 'a' exists already",
        retryable=False,
        may_have_applied=False,
        request_id="abc",
    )

    assert isinstance(error, TopicExists)
    assert str(error) == error.detail == "topic 'a' exists already"
    assert (error.code, error.request_id, error.status) == ("TOPIC_ALREADY_EXISTS", "abc", 409)
    assert error.__notes__ == ["request id: abc"]


def test_a_class_with_its_own_words_keeps_those_of_the_gateway() -> None:
    error = reply(416, code="OFFSET_OUT_OF_RANGE", detail="offset 9 is outside the log")

    assert isinstance(error, OffsetOutOfRange)
    assert str(error) == "offset 9 is outside the log"


@pytest.mark.parametrize(
    ("number", "status", "kind", "retryable"),
    [
        (40401, 404, UnknownSchema, False),
        (40403, 404, UnknownSchema, False),
        (409, 409, IncompatibleSchema, False),
        (42201, 422, InvalidSchemaText, False),
        (42205, 422, SchemaRefused, False),
        (40101, 401, Unauthenticated, False),
        (40301, 403, Unauthorized, False),
        (429, 429, Overloaded, True),
        (50001, 500, Unavailable, True),
        (50002, 500, OutcomeUnknown, True),
    ],
)
def test_the_registry_has_numbers_instead_of_codes(
    number: int, status: int, kind: type[RiachoError], retryable: bool
) -> None:
    headers = {"content-type": "application/vnd.schemaregistry.v1+json"}
    body = json.dumps({"error_code": number, "message": "why"}).encode()
    error: Any = error_of(status, headers, body)

    assert type(error) is kind
    assert (str(error), error.error_code, error.status) == ("why", number, status)
    assert (error.retryable, error.may_have_applied) == (retryable, kind is OutcomeUnknown)


@pytest.mark.parametrize(
    ("status", "retryable", "may_have_applied", "family"),
    [
        (400, False, False, Rejected),
        (503, True, False, Unavailable),
        (429, True, False, Overloaded),
        (504, True, True, OutcomeUnknown),
        (500, False, True, OutcomeUnknown),
    ],
)
def test_an_unknown_code_becomes_its_family(
    status: int, retryable: bool, may_have_applied: bool, family: type[RiachoError]
) -> None:
    error = reply(
        status, code="NEW_IN_2030", retryable=retryable, may_have_applied=may_have_applied
    )

    assert type(error) is family
    assert error.code == "NEW_IN_2030"
    assert (error.retryable, error.may_have_applied) == (retryable, may_have_applied)


@pytest.mark.parametrize(
    ("status", "retryable", "may_have_applied"),
    [(404, False, False), (502, True, True), (503, True, False), (500, False, True)],
)
def test_what_a_proxy_says_is_taken_with_caution(
    status: int, retryable: bool, may_have_applied: bool
) -> None:
    error = error_of(status, {"content-type": "text/html"}, b"<h1>oops</h1>")

    assert (error.retryable, error.may_have_applied) == (retryable, may_have_applied)
    assert "is this URL a Riacho gateway?" in str(error)


def test_the_gateway_may_ask_us_to_wait() -> None:
    problem = json.dumps({"code": "THROTTLING_QUOTA_EXCEEDED"}).encode()

    assert retry_after_s_of(error_of(503, PROBLEM | {"retry-after": "3"}, problem)) == 3
    assert retry_after_s_of(error_of(503, PROBLEM | {"retry-after": "Mon"}, problem)) == 0
    assert retry_after_s_of(new_error(GatewayUnreachable, "no")) == 0


def test_waits_double_up_to_a_limit() -> None:
    backoff = Backoff(first_ms=100, most_ms=1000)

    waits = [backoff.wait_s(attempt, random=0.5) for attempt in (1, 2, 3, 4, 5, 10_000)]

    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_waits_spread_by_a_fifth_and_obey_the_server() -> None:
    backoff = Backoff(first_ms=100, most_ms=1000)

    assert backoff.wait_s(1, random=0.0) == pytest.approx(0.08)
    assert backoff.wait_s(1, random=1.0) == pytest.approx(0.12)
    assert backoff.wait_s(1, random=0.5, at_least_s=2) == 2
