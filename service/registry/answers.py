"""Requests and answers of the registry's calls, as Confluent's clients write and read them.

Unlike in Riacho's own calls, parameters that are not known are ignored: newer clients send some.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.http.problems import CHALLENGE, status_of
from service.http.requests import read_body
from service.log.gateway import Gateway
from service.registry import errors
from service.registry.bodies import MEDIA_TYPE
from service.registry.errors import RegistryError, invalid_version, no_subject
from service.registry.reading import Schema
from service.registry.registering import LATEST, VERSION_MAX
from service.security.caller import Caller, caller_of
from storage.errors import (
    Corrupt,
    OutcomeUnknown,
    QuotaExceeded,
    RiachoError,
    SubjectUnauthorized,
    Unauthenticated,
    Unauthorized,
    Unavailable,
)

log = logging.getLogger("riacho.registry")

T = TypeVar("T")

BODY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum body: a schema of the maximum size, as a JSON string of escapes."""


Call = Callable[[Request], Awaitable[Response]]


def answer(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type=MEDIA_TYPE)


def text_answer(text: str) -> Response:
    return Response(text.encode(), media_type=MEDIA_TYPE)


class Parameters:
    """The query string."""

    def __init__(self, request: Request) -> None:
        try:
            text: str = request.scope["query_string"].decode()
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=64)
        except ValueError:
            raise RegistryError(
                400, "the query string is not UTF-8, or has too many fields"
            ) from None
        self._pairs = pairs
        self._values: dict[str, str] = dict(pairs)

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter that may be repeated."""
        return [text for each, text in self._pairs if each == name]

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, *names: str) -> bool:
        """Return whether one of the names that clients have for a parameter says true."""
        return any(self._values.get(name, "").lower() == "true" for name in names)

    def page(self, found: Sequence[T]) -> list[T]:
        """Return what `offset` and `limit` choose of `found`."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        start = max(0, offset)
        return list(found[start:] if limit < 0 else found[start : start + limit])

    def _number(self, name: str, default: int) -> int:
        text = self._values.get(name, "")
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
            raise RegistryError(404, f"HTTP 404 Not Found: {name} is a number, not {text!r:.100}")
        return int(text)


def parse_version(text: str) -> int:
    """Return the number of a version, -1 for the latest, or raise 42202."""
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise invalid_version(text[:100])
    number = int(text)
    if not 1 <= number <= VERSION_MAX:
        raise invalid_version(text)
    return number


def parse_id(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 10:
        raise RegistryError(404, f"HTTP 404 Not Found: {text!r:.100} is not an id of a schema")
    return int(text)


async def read_as(request: Request, gateway: Gateway, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the body, decoded, or raise 422 as Confluent does for JSON of another shape."""
    _check_type(request.headers.get("content-type", ""))
    with gateway.admission.hold() as hold:
        data = await read_body(
            request,
            hold,
            gateway.heavy_work,
            request_bytes_max=BODY_BYTES_MAX,
            decompressed_bytes_max=BODY_BYTES_MAX,
        )
        return decode_body(data, decoder)


def _check_type(content_type: str) -> None:
    """Raise unless the client says that it sends JSON, or nothing: no form of a web page does."""
    found = content_type.partition(";")[0].strip().lower()
    if found and not found.endswith("json") and found != "application/octet-stream":
        raise RegistryError(415, f"HTTP 415 Unsupported Media Type: send {MEDIA_TYPE}")


def decode_body(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(422, f"the body is not what this call takes: {error}") from None


def shown(schema: Schema) -> dict[str, Any]:
    """Return what answers say of a schema besides its text."""
    body: dict[str, Any] = {}
    if schema.type != "AVRO":
        body["schemaType"] = schema.type
    if schema.references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    if schema.metadata:
        body["metadata"] = msgspec.Raw(schema.metadata)
    if schema.rule_set:
        body["ruleSet"] = msgspec.Raw(schema.rule_set)
    return body


def failed(error: Exception, caller: Caller, parameters: Mapping[str, str]) -> Response | None:
    """Return the registry's answer to an error; None: it is unexpected."""
    headers: dict[str, str] = {}
    if isinstance(error, RegistryError):
        status, code, message = error.status, error.code, str(error)
    elif isinstance(error, SubjectUnauthorized):
        # The same as of a subject that does not exist.
        name = caller.outer_name(parameters.get("subject", ""))
        return failed(no_subject(name), caller, parameters)
    elif isinstance(error, HTTPException):
        status, code, message = error.status_code, error.status_code, str(error.detail)
    elif isinstance(error, RiachoError):
        code, message = _code(error), str(error)
        status = RegistryError(code, "").status
        if isinstance(error, Corrupt):
            log.error("stored data is damaged", exc_info=error)
        if isinstance(error, Unauthenticated):
            headers["www-authenticate"] = CHALLENGE
        if isinstance(error, QuotaExceeded | Unavailable):
            headers["retry-after"] = "1"
    else:
        return None
    body = {"error_code": code, "message": caller.outer_text(message)}
    return Response(
        msgspec.json.encode(body), status_code=status, media_type=MEDIA_TYPE, headers=headers
    )


def _code(error: RiachoError) -> int:
    if isinstance(error, Unauthenticated):
        return errors.UNAUTHENTICATED
    if isinstance(error, Unauthorized):
        return errors.FORBIDDEN
    if isinstance(error, OutcomeUnknown):
        return errors.TIMEOUT
    status = int(status_of(type(error)))
    return errors.STORE if status >= 500 else status


def caller_in(request: Request) -> Caller:
    return caller_of(request.scope)
