"""JSON bodies of calls that are not produce, decoded into typed structs."""

from typing import TypeVar

import msgspec
from starlette.requests import Request

from service.http.requests import JSON, read_body
from service.log.gateway import Gateway
from service.security.caller import caller_of
from storage.errors import InvalidRequest, UnsupportedMediaType

T = TypeVar("T")


async def read_json(request: Request, gateway: Gateway, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the body decoded by `decoder`, with full names; an empty body counts as `{}`."""
    check_json(request.headers.get("content-type"))
    settings = gateway.settings
    with gateway.admission.hold() as hold:
        data = await read_body(
            request,
            hold,
            gateway.heavy_work,
            request_bytes_max=settings.request_bytes_max,
            decompressed_bytes_max=settings.decompressed_bytes_max,
        )
        body = await gateway.heavy_work.convert(len(data), lambda: decode_json(data, decoder))
    return caller_of(request.scope).inward(body)


def decode_json(data: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the body decoded by `decoder`, or raise `InvalidRequest`."""
    try:
        return decoder.decode(data or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"body: {error}") from None


def check_json(content_type: str | None) -> None:
    """Raise `UnsupportedMediaType` if the client declares another type of body."""
    if content_type and content_type.partition(";")[0].strip().lower() != JSON:
        raise UnsupportedMediaType(
            f"Content-Type {content_type!r} is not read here; send {JSON}"
            " (curl: -H 'content-type: application/json')"
        )
