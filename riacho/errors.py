"""Every error the client raises, and how replies become errors.

The gateway answers a failure with a problem document (RFC 9457), whose `code` names one of
the classes of `storage.errors`. The client raises that class, so both sides of the wire
speak of the same errors:

    try:
        admin.create_topic("orders")
    except TopicExists:
        pass

The families say what to do next: `Rejected` (change the request), `Conflict` (read again),
`Unavailable` (nothing was written, retry later), `OutcomeUnknown` (it may have been
written), `Corrupt`. A raised error carries `code`, `retryable`, `may_have_applied`, `detail`
and, when a gateway answered, `request_id` and `status`.

Some errors are raised only by the client: `GatewayUnreachable`, `BufferExhausted` and
`DeliveryTimeout`, where certainly nothing was written; for consumers in groups `CommitFailed`,
`FencedInstance` and `NoOffset`; for transactions `TransactionAborted` and `AlreadyCommitted`.
A lost reply is an `OutcomeUnknown`, as when the gateway loses a reply from its stores.

Errors of the registry of schemas carry Confluent's number of the reason as `error_code`:
`UnknownSchema`, `IncompatibleSchema`, `InvalidSchemaText`, and `SchemaRefused` for other reasons.
Those of Connect are `ConnectRefused`, with Kafka's status.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from storage.errors import (
    Conflict,
    IncompatibleSchema,
    InvalidSchemaText,
    OutcomeUnknown,
    Overloaded,
    Rejected,
    RiachoError,
    Unauthenticated,
    Unauthorized,
    Unavailable,
    UnknownSchema,
)


class GatewayUnreachable(Unavailable):
    """No connection could be made, so nothing was sent."""

    code = "BROKER_NOT_AVAILABLE"


class BufferExhausted(Unavailable):
    """The producer's buffer stayed full for `max_block_ms`; the record was not accepted."""

    code = "BUFFER_EXHAUSTED"


class DeliveryTimeout(Unavailable):
    """The record was not written within `delivery_timeout_ms`, and certainly will not be.

    Where that is not certain, because a reply was lost, the error is an `OutcomeUnknown`.
    """

    code = "DELIVERY_TIMED_OUT"


class CommitFailed(Conflict):
    """The partitions now belong to another member, which reads what was not committed."""

    code = "COMMIT_FAILED"


class FencedInstance(Conflict):
    """Another consumer with the same `group_instance_id` has taken this one's place."""

    code = "FENCED_INSTANCE_ID"


class TransactionAborted(Conflict):
    """The record was part of a transaction that was aborted; it is not written."""

    code = "TRANSACTION_ABORTED"


class AlreadyCommitted(Conflict):
    """The last transaction, whose outcome was unknown, was committed after all.

    No new transaction was begun. Check what is left to do (a consumer: `seek_to_committed`), so
    that nothing is done twice; then begin the next transaction.
    """

    code = "TRANSACTION_COMMITTED"


class NoOffset(Rejected):
    """Nothing is committed, and `auto_offset_reset` is "none": seek to the first offset to read."""

    code = "NO_OFFSET_FOR_PARTITION"


class SchemaRefused(Rejected):
    """The registry refused a call; `error_code` is Confluent's number of the reason."""

    code = "SCHEMA_REFUSED"


class ConnectRefused(Rejected):
    """Connect refused a call; `status` is Kafka's, 404 for what is not there."""

    code = "CONNECT_REFUSED"


_CONNECT_KINDS: Final[dict[int, type[RiachoError]]] = {401: Unauthenticated, 403: Unauthorized}
_CONNECT_TIMEOUT: Final = 504

_REGISTRY_TIMEOUT: Final = 50002
_REGISTRY_INVALID_SCHEMA: Final = 42201
_REGISTRY_KINDS: Final[dict[int, type[RiachoError]]] = {
    401: Unauthenticated,
    403: Unauthorized,
    404: UnknownSchema,
    409: IncompatibleSchema,
}


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> RiachoError:
    """Return the error for a reply with a status of 400 or more.

    An unknown code is mapped to its family by status and flags. A body that is not a problem
    document comes from something between client and gateway, such as a proxy.
    """
    document = _document(headers, body)
    if document.get("error_code") == status and "schemaregistry" not in headers["content-type"]:
        return _error_of_connect(document, status, headers)
    if isinstance(document.get("error_code"), int):
        return _error_of_registry(document, status, headers)
    if "code" not in document:
        return _error_of_stranger(status, headers, body)
    problem = document
    error = error_of_document(problem, status)
    request_id = problem.get("request_id") or _request_id(headers)
    # The document is exact; the header counts whole seconds.
    retry_after_s = retry_after_s_of(error) or _retry_after_s(headers)
    error.__dict__.update(request_id=request_id, retry_after_s=retry_after_s)
    if request_id:
        error.add_note(f"request id: {request_id}")
    return error


def error_of_document(problem: Mapping[str, Any], status: int | None = None) -> RiachoError:
    """Return the error that a problem document describes."""
    status = status or int(problem.get("status", 500))
    retryable = problem.get("retryable") is True
    may_have_applied = problem.get("may_have_applied") is True
    throttled = problem.get("throttle_time_ms")
    code = str(problem.get("code", ""))
    kind = _kinds().get(code) or _family(status, retryable, may_have_applied)
    return new_error(
        kind,
        str(problem.get("detail") or problem.get("title") or f"status {status}"),
        status=status,
        code=code or kind.code,
        retryable=retryable,
        may_have_applied=may_have_applied,
        retry_after_s=_seconds(throttled / 1000) if isinstance(throttled, int) else 0.0,
    )


def new_error(kind: type[RiachoError], detail: str, **fields: object) -> RiachoError:
    """Return an error of `kind` with `detail` as its message, and `fields` as attributes.

    Bypasses `__init__`: some classes build their message from what only the server knows.
    """
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    error.__dict__.update({"detail": detail, "request_id": None, "status": None, **fields})
    return error


def retry_after_s_of(error: RiachoError) -> float:
    """Return how long the gateway asked the client to wait before a retry, or 0."""
    return float(getattr(error, "retry_after_s", 0.0))


def _document(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the body as a JSON object; empty: it is none."""
    if "json" not in headers.get("content-type", ""):
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _error_of_connect(
    document: Mapping[str, Any], status: int, headers: Mapping[str, str]
) -> RiachoError:
    may_have_applied = status == _CONNECT_TIMEOUT
    retryable = status >= 500 or status == 429
    kind = _CONNECT_KINDS.get(status) or _family(status, retryable, may_have_applied)
    return new_error(
        ConnectRefused if kind is Rejected else kind,
        str(document.get("message") or f"status {status}"),
        status=status,
        retryable=retryable,
        may_have_applied=may_have_applied,
        request_id=_request_id(headers),
        retry_after_s=_retry_after_s(headers),
    )


def _error_of_registry(
    document: Mapping[str, Any], status: int, headers: Mapping[str, str]
) -> RiachoError:
    number = document["error_code"]
    kind = InvalidSchemaText if number == _REGISTRY_INVALID_SCHEMA else _REGISTRY_KINDS.get(status)
    may_have_applied = number == _REGISTRY_TIMEOUT
    retryable = status >= 500 or status == 429
    kind = kind or _family(status, retryable, may_have_applied)
    return new_error(
        SchemaRefused if kind is Rejected else kind,
        str(document.get("message") or f"status {status}"),
        status=status,
        error_code=number,
        retryable=retryable,
        may_have_applied=may_have_applied,
        request_id=_request_id(headers),
        retry_after_s=_retry_after_s(headers),
    )


def _error_of_stranger(status: int, headers: Mapping[str, str], body: bytes) -> RiachoError:
    text = body[:200].decode(errors="replace").strip()
    detail = f"status {status} without a problem document; is this URL a Riacho gateway?"
    if status in (401, 403):
        detail = f"refused with status {status}; RIACHO_TOKEN or RIACHO_AUTH can say who we are."
    return new_error(
        _family(status, status in (429, 502, 503, 504), status >= 500 and status != 503),
        f"{detail} It said: {text}" if text else detail,
        status=status,
        retryable=status in (429, 502, 503, 504),
        may_have_applied=status >= 500 and status != 503,
        request_id=_request_id(headers),
        retry_after_s=_retry_after_s(headers),
    )


def _family(status: int, retryable: bool, may_have_applied: bool) -> type[RiachoError]:
    if may_have_applied:
        return OutcomeUnknown
    if status == 429:
        return Overloaded
    if retryable or status >= 500:
        return Unavailable
    return Rejected


@cache
def _kinds() -> dict[str, type[RiachoError]]:
    # Classes without a code of their own are distinguished only on the server.
    return {kind.code: kind for kind in _descendants(RiachoError) if "code" in kind.__dict__}


def _descendants(root: type[RiachoError]) -> Iterator[type[RiachoError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _descendants(kind)


def _request_id(headers: Mapping[str, str]) -> str | None:
    return headers.get("riacho-request-id") or headers.get("x-request-id")


def _retry_after_s(headers: Mapping[str, str]) -> float:
    try:
        return _seconds(float(headers.get("retry-after", "0")))
    except ValueError:  # A date: allowed, but not used for retries in practice.
        return 0.0


def _seconds(asked: float) -> float:
    return min(max(asked, 0.0), 60.0)
