"""Requests and answers of Connect's calls, as Kafka's clients write and read them.

Unlike in Riacho's own calls, parameters that are not known are ignored, such as `forward`.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.connect.rest.bodies import ConfigBody
from service.connect.rest.errors import ConnectError, bad_request
from service.http.problems import CHALLENGE, RETRY_AFTER_S, status_of
from service.http.requests import JSON, read_body
from service.log.gateway import Gateway
from service.security.caller import Caller, caller_of
from storage.errors import Corrupt, QuotaExceeded, RiachoError, Unauthenticated, Unavailable

log = logging.getLogger("riacho.connect.rest")

T = TypeVar("T")

BODY_BYTES_MAX: Final = 2 * 1024 * 1024


def answer(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, media_type=JSON)


def done(status: int) -> Response:
    """Return an answer without a body."""
    return Response(status_code=status)


class ConnectQuery:
    """The query string."""

    def __init__(self, request: Request) -> None:
        try:
            text: str = request.scope["query_string"].decode()
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=64)
        except ValueError:
            raise bad_request("the query string is not UTF-8, or has too many fields") from None
        self._pairs = pairs

    def texts(self, name: str) -> list[str]:
        return [text for each, text in self._pairs if each == name]

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.texts(name)
        return found[-1].lower() == "true" if found else default


async def read_as(request: Request, gateway: Gateway, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the body, decoded. Raises `ConnectError` if it is not what the call takes."""
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


def decode_body(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not what this call takes: {error}") from None


def _check_type(content_type: str) -> None:
    """Raise unless the client says that it sends JSON, or nothing: no form of a web page does."""
    found = content_type.partition(";")[0].strip().lower()
    if found and not found.endswith("json"):
        raise ConnectError(415, f"HTTP 415 Unsupported Media Type: send {JSON}")


def texts_of(config: ConfigBody) -> dict[str, str]:
    """Return a configuration as text; keys that are null are left out."""
    return {name: _text(value) for name, value in config.items() if value is not None}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def failed(error: Exception, caller: Caller, _: Mapping[str, str]) -> Response | None:
    """Return Connect's answer to an error; None: it is unexpected."""
    headers: dict[str, str] = {}
    if isinstance(error, ConnectError):
        status, message = error.status, str(error)
    elif isinstance(error, HTTPException):
        status, message = error.status_code, f"HTTP {error.status_code} {error.detail}"
    elif isinstance(error, RiachoError):
        status, message = int(status_of(type(error))), str(error)
        if isinstance(error, Corrupt):
            log.error("stored data is damaged", exc_info=error)
        if isinstance(error, Unauthenticated):
            headers["www-authenticate"] = CHALLENGE
        if isinstance(error, QuotaExceeded | Unavailable):
            headers["retry-after"] = str(RETRY_AFTER_S)
    else:
        return None
    body = {"error_code": status, "message": caller.outer_text(message)}
    return answer(body, status, headers)


def caller_in(request: Request) -> Caller:
    return caller_of(request.scope)


def connector_in(request: Request) -> str:
    """Return the connector that the path names, with the prefix of the caller's tenant."""
    name: str = request.path_params["connector"]
    return name
