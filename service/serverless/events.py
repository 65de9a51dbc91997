"""HTTP events of Lambda, where Mangum is not exact enough.

    version 2.0   HTTP APIs and Function URLs
    no version    REST APIs
    version 1.0   HTTP APIs configured for it: handled by Mangum itself

- The path of an HTTP API is already decoded, so an encoded slash cannot be distinguished from a
  slash; those of a REST API and a Function URL are still encoded. Decoding a path twice, or not at
  all, would turn `a%25b` into another name.
- The name of a stage precedes the path, except for `$default`.
- Text is sent as a JSON string, in which every quote and every non-ASCII letter takes more bytes.
  Base64 always takes four thirds, so large responses use it: then one limit is enough.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

from mangum.handlers.api_gateway import APIGateway, HTTPGateway
from mangum.types import LambdaConfig, LambdaContext, LambdaEvent, Response, Scope

from service.http.problems import response_to
from storage.errors import NotSupported

TEXT: Final = (
    "text/",
    "application/json",
    "application/problem+json",
    "application/x-ndjson",
)

TEXT_BYTES_MAX: Final = 64 * 1024
"""Larger responses are sent as base64, whatever their type."""

EVENT_BYTES_MAX: Final = 6_291_556
"""Maximum size of what a function returns: Lambda's 6 MB."""

ANSWER_BYTES_MAX: Final = 4_600_000
"""Maximum body that fits into `EVENT_BYTES_MAX` as base64, together with headers."""

assert ANSWER_BYTES_MAX * 4 // 3 + 64 * 1024 < EVENT_BYTES_MAX


class HttpEvent(HTTPGateway):
    """An event of version 2.0."""

    @classmethod
    def infer(cls, event: LambdaEvent, _context: LambdaContext, _config: LambdaConfig) -> bool:
        return event.get("version") == "2.0" and "http" in event.get("requestContext", {})

    @property
    def scope(self) -> Scope:
        scope = super().scope
        scope["path"], scope["raw_path"] = paths_of(self.event)
        return scope

    def __call__(self, response: Response) -> dict[str, Any]:
        if len(response["body"]) > ANSWER_BYTES_MAX:
            response = _too_large(len(response["body"]))
        headers, cookies = _headers(response["headers"])
        body = response["body"]
        is_text = _is_text(headers, body)
        answer = {
            "statusCode": int(response["status"]),
            "headers": headers,
            "body": body.decode() if is_text else base64.b64encode(body).decode(),
            "isBase64Encoded": not is_text,
        }
        return {**answer, "cookies": cookies} if cookies else answer


class RestEvent(APIGateway):
    """An event of a REST API."""

    @classmethod
    def infer(cls, event: LambdaEvent, context: LambdaContext, config: LambdaConfig) -> bool:
        return "version" not in event and super().infer(event, context, config)

    @property
    def scope(self) -> Scope:
        scope = super().scope
        scope["raw_path"] = (self.event["path"] or "/").encode()
        return scope


def paths_of(event: LambdaEvent) -> tuple[str, bytes | None]:
    """Return the path of an event of version 2.0 without the stage, decoded and as it was sent.

    None: it is unknown how it was sent.
    """
    context = event["requestContext"]
    path: str = event.get("rawPath") or context["http"]["path"]
    stage = context.get("stage", "$default")
    if stage != "$default":
        path = path.removeprefix(f"/{stage}")
    path = path or "/"
    if ".lambda-url." in context.get("domainName", ""):
        return unquote(path), path.encode()
    return path, None


def _too_large(size_bytes: int) -> Response:
    """Return the error response that replaces one that Lambda would refuse."""
    found = response_to(
        NotSupported(
            f"the answer has {size_bytes} bytes, and a function may return {ANSWER_BYTES_MAX};"
            " ask for less, or ask a gateway that runs in a container"
        ),
        "",
    )
    return {
        "status": found.status_code,
        "headers": [list(pair) for pair in found.raw_headers],
        "body": bytes(found.body),
    }


def _headers(pairs: Sequence[Sequence[bytes]]) -> tuple[dict[str, str], list[str]]:
    """Return headers, each name once, and cookies, which are a separate field."""
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            cookies.append(value)
        else:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers, cookies


def _is_text(headers: dict[str, str], body: bytes) -> bool:
    if not body:
        return True
    if len(body) > TEXT_BYTES_MAX or "content-encoding" in headers:
        return False
    if not headers.get("content-type", "").startswith(TEXT):
        return False
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
