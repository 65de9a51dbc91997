"""Requests that were made to mislead: refused, or served as what they are, on a closed gateway."""

import base64
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from service.process.limits.heads import HEAD_BYTES_MAX
from tests.gateway import GatewayProcess
from tests.integration import secured
from tests.integration.processes import TIMEOUT_S, embedded

BODY: Final = '{"records": [{"value": "v"}]}'
LENGTH: Final = f"Content-Length: {len(BODY)}\r\n"
CHUNKED: Final = "Transfer-Encoding: chunked\r\n"
CHUNK: Final = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"
QUICK_S: Final = 10.0
"""Of an answer that takes milliseconds."""


@dataclass(frozen=True)
class Closed:
    """A gateway that wants to know who calls."""

    gateway: GatewayProcess
    root: httpx.Client
    token: str
    weak: str
    """Of one that may do nothing."""

    def answers(self, request: str | bytes) -> list[int]:
        """Send these bytes; return the statuses of all answers until the gateway hangs up."""
        data = request.encode("latin-1") if isinstance(request, str) else request
        with socket.create_connection(("127.0.0.1", self.gateway.port), TIMEOUT_S) as connection:
            connection.sendall(data)
            received = b""
            while piece := connection.recv(65536):
                received += piece
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", received)]

    def get(self, target: str, *headers: str, method: str = "GET") -> list[int]:
        lines = ["Host: x", "Connection: close", *headers]
        head = "".join(f"{line}\r\n" for line in lines)
        return self.answers(f"{method} {target} HTTP/1.1\r\n{head}\r\n")

    def produce(self, headers: str, body: str) -> list[int]:
        """Send a request to produce, and one behind it that only a second reading would see."""
        head = (
            f"Host: x\r\nAuthorization: Bearer {self.token}\r\nContent-Type: application/json\r\n"
        )
        behind = "GET /healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        return self.answers(
            f"POST /v1/topics/t/records HTTP/1.1\r\n{head}{headers}\r\n{body}{behind}"
        )

    @property
    def end(self) -> int:
        path = "/v1/topics/t/partitions/0/offsets?at=latest"
        return int(self.root.get(path).json()["offset"])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder: Path = tmp_path_factory.mktemp("closed")
    (folder / "data").mkdir()
    token = secured.super_key(folder / "data")
    # Every test here is a failed login, and they come from one address.
    env = {**secured.CLOSED, "RIACHO_LOGINS_FAILED_PER_PEER_MAX": "1000000"}
    with (
        embedded(folder).start(env=env) as gateway,
        secured.client(gateway.url, token) as root,
    ):
        assert root.post("/v1/topics", json={"name": "t"}).status_code == 201
        yield Closed(gateway, root, token, secured.new_key(root, "User:weak"))


# Where a request ends


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (LENGTH + CHUNKED, CHUNK),
        (CHUNKED + LENGTH, CHUNK),
        (LENGTH + "Content-Length: 3\r\n", BODY),
        (LENGTH + LENGTH, BODY),
        (f"Content-Length: {len(BODY)}, {len(BODY)}\r\n", BODY),
        (f"Content-Length: +{len(BODY)}\r\n", BODY),
        ("Content-Length: -1\r\n", BODY),
        (f"Content-Length: {len(BODY):#x}\r\n", BODY),
        (f"Content-Length : {len(BODY)}\r\n", BODY),
        ("Transfer-Encoding: identity\r\n", BODY),
        ("Transfer-Encoding: xchunked\r\n", CHUNK),
        ("Transfer-Encoding: chunked, identity\r\n", CHUNK),
        ("Transfer-Encoding:\x0bchunked\r\n", CHUNK),
        (CHUNKED + CHUNKED, CHUNK),
        (CHUNKED, f"{len(BODY):#x}\r\n{BODY}\r\n0\r\n\r\n"),
        (CHUNKED, f"-1\r\n{BODY}\r\n0\r\n\r\n"),
        (CHUNKED, f"fffffffffffffffff\r\n{BODY}\r\n0\r\n\r\n"),
        (CHUNKED, f"{len(BODY):x};a\n{BODY}\r\n0\r\n\r\n"),
        (CHUNKED, f"{len(BODY):x}\n{BODY}\n0\n\n"),
    ],
)
def test_a_request_whose_end_can_be_read_in_two_ways_is_refused(
    closed: Closed, headers: str, body: str
) -> None:
    before = closed.end

    assert closed.produce(headers, body) == [400]

    assert closed.end == before


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (LENGTH, BODY),
        (CHUNKED, CHUNK),
        (CHUNKED, f"{len(BODY):x};name=value\r\n{BODY}\r\n0;last\r\n\r\n"),
    ],
)
def test_the_end_of_a_request_is_where_the_next_begins(
    closed: Closed, headers: str, body: str
) -> None:
    before = closed.end

    assert closed.produce(headers, body) == [200, 200]

    assert closed.end == before + 1


@pytest.mark.parametrize(
    "request_",
    [
        "GET /v1/whoami HTTP/1.1\nHost: x\nConnection: close\nAuthorization: Bearer KEY\n\n",
        "GET /v1/whoami HTTP/1.1\rHost: x\rAuthorization: Bearer KEY\r\r",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX: a\nAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX: a\rAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nX: a\0b\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nHost: y\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/whoami HTTP/1.2\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "get /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "ANY /v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "CONNECT x:80 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET v1/whoami HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET  HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/\xe9 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
        "GET /v1/whoami\0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\n\r\n",
    ],
)
def test_what_is_not_quite_http_is_refused(closed: Closed, request_: str) -> None:
    assert closed.answers(request_.replace("KEY", closed.token)) == [400]


def test_fields_behind_a_body_are_no_headers(closed: Closed) -> None:
    trailer = f"Authorization: Bearer {closed.token}\r\n"
    head = "GET /v1/whoami HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"

    assert closed.answers(f"{head}{CHUNKED}\r\n0\r\n{trailer}\r\n") == [401]
    assert closed.answers(f"{head}{trailer}{CHUNKED}\r\n0\r\nX: y\r\n\r\n") == [200]


# What else may say who calls, or what is asked for


@pytest.mark.parametrize(
    "header",
    [
        'x-amzn-request-context: {"authorizer": {"iam": {"userArn": "arn:aws:iam::1:root"}}}',
        "x-amzn-oidc-identity: root",
        "x-amzn-oidc-data: e30.e30.e30",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-user: root",
        "x-forwarded-proto: https",
        "forwarded: for=127.0.0.1",
        "x-real-ip: 127.0.0.1",
        "remote-user: root",
        "x-remote-user: User:root",
        "x-client-cert: CN=root",
        "x-ssl-client-s-dn: CN=root",
        "riacho-principal: User:root",
        "riacho.identity: User:root",
        "riacho.caller: User:root",
        "x-original-url: /healthy",
        "x-rewrite-url: /healthy",
        "x-http-method-override: OPTIONS",
        "cookie: authorization=KEY",
        "proxy-authorization: Bearer KEY",
        "x-api-key: KEY",
        "sec-websocket-protocol: KEY",
        "x-authorization: Bearer KEY",
        "authorization_: Bearer KEY",
    ],
)
def test_no_other_header_says_who_calls_or_what_is_asked_for(closed: Closed, header: str) -> None:
    header = header.replace("KEY", closed.token)
    weak = f"authorization: Bearer {closed.weak}"

    assert closed.get("/v1/whoami", header) == [401]
    assert closed.get("/v1/cluster", header, weak) == closed.get("/v1/cluster", weak) == [403]
    assert closed.get("/v1/topics/t", header, weak, method="DELETE") == [403]


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("target", ["/v1/topics/t", "/metrics", "/nowhere", "*", "/docs", "/"])
def test_without_a_credential_no_method_says_what_is_there(
    closed: Closed, method: str, target: str
) -> None:
    assert closed.get(target, method=method) == [401]


def test_other_methods_are_refused(closed: Closed) -> None:
    key = f"authorization: Bearer {closed.token}"

    for method in ("TRACE", "PROPFIND", "SEARCH", "LOCK", "PURGE"):
        assert closed.get("/v1/topics/t", method=method) == [401]
        assert closed.get("/v1/topics/t", key, method=method) == [405]


def test_a_connection_never_becomes_something_else(closed: Closed) -> None:
    websocket = ("Upgrade: websocket", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    key = f"authorization: Bearer {closed.token}"

    for upgrade in (websocket, ("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__")):
        assert closed.get("/v1/whoami", *upgrade)[0] == 401
        assert closed.get("/v1/whoami", *upgrade, "Connection: close, upgrade") == [401]
        assert closed.get("/v1/whoami", *upgrade, "Connection: close, upgrade", key) == [200]


@pytest.mark.parametrize("host", ["x", "x.", "", "evil.example", "localhost:1", "[::1]"])
def test_the_host_has_no_effect(closed: Closed, host: str) -> None:
    head = f"Host: {host}\r\nConnection: close\r\n"
    key = f"Authorization: Bearer {closed.token}\r\n"

    for target in ("/v1/whoami", f"http://{host or 'x'}/v1/whoami"):
        assert closed.answers(f"GET {target} HTTP/1.1\r\n{head}\r\n") == [401]
        assert closed.answers(f"GET {target} HTTP/1.1\r\n{head}{key}\r\n") == [200]
    with secured.client(closed.gateway.url, closed.token) as client:
        found = client.get("/v1/topics/t/?x=1", headers={"host": host or "x"})
        assert (found.status_code, found.headers["location"]) == (307, "/v1/topics/t?x=1")


# Forms of paths

SAME = ["/v1/topics/t", "/v1/topics/%74", "/%76%31/topics/t", "http://x/v1/topics/t"]
NOTHING = [
    "/v1//topics/t",
    "//v1/topics/t",
    "/v1/./topics/t",
    "/v1/x/../topics/t",
    "/v1/%2e%2e/v1/topics/t",
    "/%2e/v1/topics/t",
    "/healthy/../v1/topics/t",
    "/healthy/%2e%2e/v1/topics/t",
    "/healthy%2f..%2fv1/topics/t",
    "/healthy;/v1/topics/t",
    "/healthy;x",
    "/healthy%00",
    "/healthy%20",
    "/healthy%2f",
    "/HEALTHY",
    "/ready/../metrics",
    "/docs/../v1/topics",
    "/v1%2Ftopics%2Ft",
    "/v1\\topics\\t",
    "/v1/topics;x/t",
    "/$default/v1/topics/t",
    "/prod/v1/topics/t",
]
OTHER_NAMES = [
    "/v1/topics/t%00",
    "/v1/topics/t;x",
    "/v1/topics/t%252e",
    "/v1/topics/t%2Fpartitions",
    "/v1/topics/t%2F..%2Ft",
    "/v1/topics/..%2Ft",
    "/v1/topics/%2e%2e",
    "/v1/topics/t%0d%0aX:%20y",
    "/v1/topics/t%EF%BC%8F",
]
NO_TEXT = ["/v1/topics/%c0%ae", "/v1/topics/%e0%80%af", "/v1/topics/%ff", "/v1/topics/%ed%a0%80"]


@pytest.mark.parametrize("target", [*SAME, *NOTHING, *OTHER_NAMES, *NO_TEXT])
def test_every_form_of_a_path_gets_the_verdict_of_what_it_names(
    closed: Closed, target: str
) -> None:
    root, weak = (f"authorization: Bearer {key}" for key in (closed.token, closed.weak))
    got = [closed.get(target, *headers) for headers in ((), (weak,), (root,))]

    if target in SAME:
        assert got == [[401], [403], [200]]
    elif target in NOTHING:
        assert got == [[401], [404], [404]]
    elif target in OTHER_NAMES:
        assert got == [[401], [403], [400]]
    else:
        assert got == [[400], [400], [400]]


def test_what_is_open_says_only_that_the_gateway_runs(closed: Closed) -> None:
    for target in ("/healthy", "/ready", "/healthy?x=1", "/%68ealthy", "http://evil/healthy"):
        assert closed.get(target) == [200]
    with secured.client(closed.gateway.url) as client:
        assert client.get("/healthy").json() == client.get("/ready").json() == {"status": "ok"}


# Sizes


@pytest.mark.parametrize(
    "head",
    [
        "X: " + "a" * 1_000_000,
        "X: " + "a" * HEAD_BYTES_MAX,
        "\r\n".join(f"X{number}: a" for number in range(100_000)),
        "Authorization: Bearer " + "a" * 1_000_000,
        "Cookie: " + "a=b; " * 100_000,
    ],
    ids=["long", "just too long", "many", "credential", "cookies"],
)
def test_a_head_has_a_maximum_size(closed: Closed, head: str) -> None:
    began_s = time.monotonic()

    assert closed.get("/v1/whoami", head, f"Authorization: Bearer {closed.token}") == [431]

    assert time.monotonic() - began_s < QUICK_S


def test_a_head_that_never_ends_is_refused(closed: Closed) -> None:
    for endless in ("GET /" + "a" * 2_000_000, "GET / HTTP/1.1\r\n" + "X" * 2_000_000):
        assert closed.answers(endless)[0] in {400, 431}
    trailers = "".join(f"X{number}: a\r\n" for number in range(100_000))
    assert closed.produce(CHUNKED, f"{CHUNK[:-2]}{trailers}")[-1] in {200, 431}


def test_a_head_below_the_maximum_is_served(closed: Closed) -> None:
    wide = "X: " + "a" * (HEAD_BYTES_MAX - 1000)

    assert closed.get("/v1/whoami", wide, f"Authorization: Bearer {closed.token}") == [200]


def test_long_targets_are_refused(closed: Closed) -> None:
    key = f"Authorization: Bearer {closed.token}"
    for target in ("/v1/topics/" + "a" * 100_000, "/v1/topics?" + "a=1&" * 30_000):
        assert closed.get(target, key) == [400]


# Credentials


def basic(text: bytes) -> str:
    return "Authorization: Basic " + base64.b64encode(text).decode()


@pytest.mark.parametrize(
    "credential",
    [
        "Authorization:",
        "Authorization: Bearer",
        "Authorization: Bearer ",
        "Authorization: Basic",
        "Authorization: Basic ====",
        "Authorization: Basic !!!!",
        "Authorization: Basic YQ",
        "Authorization: Digest username=root",
        "Authorization: Negotiate YII=",
        "Authorization: KEY",
        "Authorization: Bearer KEY KEY",
        "Authorization: Bearer KEY,",
        "Authorization: Bearer Bearer KEY",
        "Authorization: Bearer 'KEY'",
        "Authorization: Bearer KEY\x80",
        "Authorization: Bearer k\xc3\xa9y",
        "Authorization: Bearer rk_",
        "Authorization: Bearer rk_a_b_c",
        "Authorization: Bearer rk_" + "a" * 15_000,
        "Authorization: Bearer " + "a" * 100_000,
        "Authorization: Bearer " + "." * 15_000,
        "Authorization: Bearer e30.e30.",
        "Authorization: Bearer " + "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.",
        basic(b""),
        basic(b":"),
        basic(b"root"),
        basic(b"root:"),
        basic(b":root"),
        basic(b"root\0:root"),
        basic(b"\xff\xfe:\xff"),
        basic(b"key/../key:x"),
        basic(b"a" * 5000 + b":" + b"b" * 5000),
        "\r\n".join(["Authorization: Bearer KEY"] * 2),
        "\r\n".join(["Authorization: Bearer KEY"] * 1000),
        "\r\n".join(["Authorization: Bearer KEY", "Authorization: Basic YTpi"]),
    ],
    ids=lambda credential: repr(credential[:60]),
)
def test_a_bad_credential_is_refused(closed: Closed, credential: str) -> None:
    credential = credential.replace("KEY", closed.token)
    if credential.count("\r\n") > 500:
        # As much as a head may hold.
        credential = credential[: HEAD_BYTES_MAX // 2].rpartition("\r\n")[0]
    began_s = time.monotonic()

    assert closed.get("/v1/whoami", credential) == [401]
    assert closed.get("/v1/topics/t", credential, method="DELETE") == [401]

    assert time.monotonic() - began_s < QUICK_S
    assert closed.root.get("/v1/topics/t").status_code == 200


def test_a_credential_on_several_lines_is_refused(closed: Closed) -> None:
    for fold in ("\r\n ", "\n", "\r\n\t", "\r"):
        assert closed.get("/v1/whoami", f"Authorization: Bearer{fold}{closed.token}") == [400]


def test_good_credentials_are_let_in(closed: Closed) -> None:
    _, key_id, *_ = closed.token.split("_")
    secret = closed.token.removeprefix(f"rk_{key_id}_").rpartition("_")[0]
    for good in (
        f"authorization: bearer {closed.token}",
        f"AUTHORIZATION:   Bearer   {closed.token}  ",
        basic(f"{key_id}:{secret}".encode()),
    ):
        assert closed.get("/v1/whoami", good) == [200], good
