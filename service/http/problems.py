"""Errors as HTTP: one table, one shape, RFC 9457 problem documents.

This is the only module that knows both vocabularies. Domain code raises a `RiachoError` and
never a status; routes never catch one.
"""

import logging
import math
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.security.caller import ANYONE, Caller
from storage.errors import (
    Conflict,
    Contended,
    Corrupt,
    IdempotencyKeyReused,
    InvalidRequest,
    NotAcceptable,
    NotSupported,
    OffsetOutOfRange,
    OutcomeUnknown,
    QuotaExceeded,
    RecordTooLarge,
    Rejected,
    RequestTooLarge,
    RiachoError,
    SchemaMismatch,
    TransactionTooLarge,
    Unauthenticated,
    Unauthorized,
    Unavailable,
    UnfitRecords,
    UnknownCredential,
    UnknownGroup,
    UnknownMember,
    UnknownProducer,
    UnknownSchema,
    UnknownTopicOrPartition,
    UnknownTransaction,
    UnsupportedMediaType,
)

log = logging.getLogger("riacho.error")

MEDIA_TYPE: Final = "application/problem+json"

UNKNOWN: Final = "UNKNOWN_SERVER_ERROR"
"""The code of an unexpected error."""

RETRY_AFTER_S: Final = 1
"""Value of `Retry-After`: the shortest possible, since a flush takes far less. A request that only
lost a race can be retried at once."""

CHALLENGE: Final = 'Bearer realm="riacho", Basic realm="riacho", charset="UTF-8"'
"""Value of `WWW-Authenticate`: a key or a token, or a key's id and secret as user and password."""

_STATUS: Final[dict[type, HTTPStatus]] = {
    Rejected: HTTPStatus.BAD_REQUEST,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    Unauthorized: HTTPStatus.FORBIDDEN,
    UnknownCredential: HTTPStatus.NOT_FOUND,
    QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    UnknownTopicOrPartition: HTTPStatus.NOT_FOUND,
    UnknownGroup: HTTPStatus.NOT_FOUND,
    UnknownMember: HTTPStatus.NOT_FOUND,
    UnknownProducer: HTTPStatus.NOT_FOUND,
    UnknownSchema: HTTPStatus.NOT_FOUND,
    UnknownTransaction: HTTPStatus.NOT_FOUND,
    TransactionTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    IdempotencyKeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    NotAcceptable: HTTPStatus.NOT_ACCEPTABLE,
    RecordTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RequestTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    OffsetOutOfRange: HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
    NotSupported: HTTPStatus.NOT_IMPLEMENTED,
    Conflict: HTTPStatus.CONFLICT,
    Unavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    OutcomeUnknown: HTTPStatus.GATEWAY_TIMEOUT,
    Corrupt: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class RecordProblem(msgspec.Struct):
    """Why a record does not fit its schema."""

    index: Annotated[int, msgspec.Meta(description="its place in the request")]
    part: Annotated[str, msgspec.Meta(description="key or value")]
    path: Annotated[str, msgspec.Meta(description="where in it, as a JSON pointer")]
    reason: str


class Problem(msgspec.Struct):
    """What went wrong, as RFC 9457 has it."""

    type: str
    title: str
    status: int
    code: Annotated[str, msgspec.Meta(description="Kafka's name where Kafka has one")]
    detail: Annotated[str, msgspec.Meta(description="what is wrong and what to do")]
    retryable: bool
    may_have_applied: bool
    request_id: str
    throttle_time_ms: Annotated[
        int | msgspec.UnsetType, msgspec.Meta(description="with 429: when to try again")
    ] = msgspec.UNSET
    records: Annotated[
        list[RecordProblem] | msgspec.UnsetType,
        msgspec.Meta(description="the first of the records that do not fit their schema"),
    ] = msgspec.UNSET


def status_of(kind: type[RiachoError]) -> HTTPStatus:
    """Return the status of the nearest ancestor that has one."""
    return next(_STATUS[ancestor] for ancestor in kind.__mro__ if ancestor in _STATUS)


def document(error: RiachoError, request_id: str, caller: Caller = ANYONE) -> Problem:
    """Return the problem document of `error`, with names as `caller` knows them."""
    body = _document(
        status_of(type(error)),
        error.code,
        caller.outer_text(str(error)),
        request_id,
        retryable=error.retryable,
        may_have_applied=error.may_have_applied,
        throttle_ms=error.throttle_ms if isinstance(error, QuotaExceeded) else None,
    )
    if isinstance(error, SchemaMismatch | UnfitRecords):
        body.records = [
            RecordProblem(each.index, each.part, each.path, caller.outer_text(each.reason))
            for each in error.refused
        ]
    return body


def response_to(error: Exception, request_id: str, caller: Caller = ANYONE) -> Response:
    """Return the response to any error; unexpected errors are logged here."""
    if isinstance(error, RiachoError):
        if isinstance(error, Corrupt):
            log.error("stored data is damaged", exc_info=error, extra={"request_id": request_id})
        body = document(error, request_id, caller)
        headers = {}
        if isinstance(error, Unauthenticated):
            headers["www-authenticate"] = CHALLENGE
        if isinstance(error, QuotaExceeded):
            headers["retry-after"] = str(max(1, math.ceil(error.throttle_ms / 1000)))
        elif isinstance(error, Unavailable):
            headers["retry-after"] = "0" if isinstance(error, Contended) else str(RETRY_AFTER_S)
        return _response(body, headers)
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        detail = error.detail if error.detail != status.phrase else _hint(status)
        code = InvalidRequest.code if status == HTTPStatus.BAD_REQUEST else status.name
        body = _document(status, code, detail, request_id)
        return _response(body, dict(error.headers or {}))
    log.error("unexpected error", exc_info=error, extra={"request_id": request_id})
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    body = _document(
        status,
        UNKNOWN,
        "this is a fault of the gateway, and its error log has the details",
        request_id,
        may_have_applied=True,
    )
    return _response(body, {})


def _document(
    status: HTTPStatus,
    code: str,
    detail: str,
    request_id: str,
    *,
    retryable: bool = False,
    may_have_applied: bool = False,
    throttle_ms: int | None = None,
) -> Problem:
    return Problem(
        type=f"/problems/{code.lower().replace('_', '-')}",
        title=status.phrase,
        status=int(status),
        code=code,
        detail=detail,
        retryable=retryable,
        may_have_applied=may_have_applied,
        request_id=request_id,
        throttle_time_ms=msgspec.UNSET if throttle_ms is None else throttle_ms,
    )


def _response(body: Problem, headers: dict[str, str]) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=body.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def _hint(status: HTTPStatus) -> str:
    if status == HTTPStatus.NOT_FOUND:
        return "there is nothing at this path; see /docs for what there is"
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return "this path does not take this method; see /docs for what it takes"
    return status.phrase
