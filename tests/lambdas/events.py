"""Requests as the events that AWS makes of them, and answers back, for httpx.

Shapes as API Gateway and Function URLs send them: an HTTP API decodes the path, a Function URL does
not; both join headers that come twice, take cookies out, and send a body as base64 unless its media
type is text.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

import httpx

Event = dict[str, Any]
Invoke = Callable[[Mapping[str, Any]], Any]

_TEXT: Final = ("text/", "application/json", "application/javascript", "application/xml")


def http_api(request: httpx.Request, stage: str = "$default") -> Event:
    """Return the event of an HTTP API with payload format 2.0."""
    path = unquote(_raw_path(request))
    if stage != "$default":
        path = f"/{stage}{path}"
    return _version_2(request, path, "api1.execute-api.us-east-1.amazonaws.com", stage)


def function_url(request: httpx.Request) -> Event:
    """Return the event of a Function URL."""
    return _version_2(request, _raw_path(request), "url1.lambda-url.us-east-1.on.aws", "$default")


def rest_api(request: httpx.Request) -> Event:
    """Return the event of a REST API whose binary media types are `*/*`."""
    path = _raw_path(request)
    headers = _multi(request.headers.multi_items())
    query = _multi(parse_qsl(request.url.query.decode(), keep_blank_values=True))
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": request.method,
        "headers": {name: values[-1] for name, values in headers.items()},
        "multiValueHeaders": headers,
        "queryStringParameters": {name: values[-1] for name, values in query.items()} or None,
        "multiValueQueryStringParameters": query or None,
        "pathParameters": {"proxy": path.lstrip("/")},
        "stageVariables": None,
        "requestContext": {
            "resourcePath": "/{proxy+}",
            "httpMethod": request.method,
            "path": f"/prod{path}",
            "stage": "prod",
            "identity": {"sourceIp": "192.0.2.1", "userAgent": "httpx"},
            "domainName": "api1.execute-api.us-east-1.amazonaws.com",
        },
        "body": base64.b64encode(request.content).decode() if request.content else None,
        "isBase64Encoded": bool(request.content),
    }


def _version_2(request: httpx.Request, path: str, domain: str, stage: str) -> Event:
    headers: dict[str, str] = {}
    for name, value in request.headers.multi_items():
        if name != "cookie":
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    headers |= {"host": domain, "x-forwarded-proto": "https", "x-forwarded-port": "443"}
    query = request.url.query.decode()
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": domain.partition(".")[0],
            "domainName": domain,
            "domainPrefix": domain.partition(".")[0],
            "http": {
                "method": request.method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "httpx",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": "$default",
            "stage": stage,
            "time": "01/Jan/2026:00:00:00 +0000",
            "timeEpoch": 1767225600000,
        },
        "isBase64Encoded": False,
    }
    if query:
        pairs = _multi(parse_qsl(query, keep_blank_values=True))
        event["queryStringParameters"] = {name: ",".join(values) for name, values in pairs.items()}
    if "cookie" in request.headers:
        event["cookies"] = request.headers["cookie"].split("; ")
    if request.content:
        is_text = request.headers.get("content-type", "").startswith(_TEXT)
        is_text = is_text and "content-encoding" not in request.headers
        content = request.content
        event["body"] = content.decode() if is_text else base64.b64encode(content).decode()
        event["isBase64Encoded"] = not is_text
    return event


def _raw_path(request: httpx.Request) -> str:
    return request.url.raw_path.partition(b"?")[0].decode()


def _multi(pairs: "list[tuple[str, str]]") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def response_of(answer: Mapping[str, Any]) -> httpx.Response:
    """Return the response that the front door makes of what a function returned."""
    body = answer.get("body") or ""
    headers = [(name, value) for name, value in (answer.get("headers") or {}).items()]
    for name, values in (answer.get("multiValueHeaders") or {}).items():
        headers += [(name, value) for value in values]
    headers += [("set-cookie", cookie) for cookie in answer.get("cookies", ())]
    return httpx.Response(
        answer["statusCode"],
        headers=headers,
        content=base64.b64decode(body) if answer.get("isBase64Encoded") else body.encode(),
    )


class LambdaTransport(httpx.BaseTransport):
    """Sends what httpx asks for to a function, as events of one kind after the other."""

    def __init__(self, invoke: Invoke, *kinds: Callable[[httpx.Request], Event]) -> None:
        self._invoke = invoke
        self._kinds = self._in_turn(kinds or (http_api, function_url))

    def _in_turn(
        self, kinds: tuple[Callable[[httpx.Request], Event], ...]
    ) -> Iterator[Callable[[httpx.Request], Event]]:
        while True:
            yield from kinds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return response_of(self._invoke(next(self._kinds)(request)))
