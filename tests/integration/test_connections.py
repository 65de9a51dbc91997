"""Connections that misbehave: whatever arrives on the socket, the next client is served."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.processes import Api, embedded

TOPIC = "known"
BODY = b'{"records": [{"value": "good"}]}'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with embedded(tmp_path_factory.mktemp("embedded")).start() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def api(gateway: GatewayProcess) -> Iterator[Api]:
    with Api(gateway.url) as api:
        api.topic(1, TOPIC)
        yield api


@pytest.fixture(autouse=True)
def stays_healthy(api: Api, gateway: GatewayProcess) -> Iterator[None]:
    yield
    assert httpx.get(api.url + "/ready").status_code == 200
    assert gateway.process.poll() is None
    assert "Traceback" not in gateway.log.read_text()
    wait_until_nothing_is_held(api)


def wait_until_nothing_is_held(api: Api) -> None:
    """Bytes of requests that were given up must be given back, or the gateway fills up."""
    give_up_s = time.monotonic() + 120
    while "riacho_held_bytes 0.0" not in httpx.get(api.url + "/metrics").text:
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def connect(gateway: GatewayProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port), timeout=120)


def exchange(gateway: GatewayProcess, *pieces: bytes) -> bytes:
    """Send, and return all that comes back until the server hangs up."""
    with closing(connect(gateway)) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def produce_head(*headers: str) -> bytes:
    lines = [
        f"POST /v1/topics/{TOPIC}/records HTTP/1.1",
        "Host: gateway",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\r\n\r\n",
        b"\x00" * 1000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # The beginning of TLS.
        b"GET",
        b"GET / HTTP/1.1\r\nHost",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/topics\r\n\r\n",
        b"BREW /v1/topics HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nNo colon\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 200_000 + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        produce_head("Content-Length: 10", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        produce_head("Content-Length: 10", "Content-Length: 20") + BODY,
        produce_head("Transfer-Encoding: chunked") + b"xyz\r\n",
        produce_head("Transfer-Encoding: chunked") + b"ffffffffffffffffff\r\n",
    ],
    ids=lambda data: repr(data)[:40],
)
def test_garbage_is_answered_or_dropped(gateway: GatewayProcess, api: Api, garbage: bytes) -> None:
    before = api.high_watermark(TOPIC)
    with closing(connect(gateway)) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        reply = read_all(connection)

    assert not reply or reply.startswith(b"HTTP/1.1 "), reply[:100]
    assert b" 500 " not in reply[:20]
    assert api.high_watermark(TOPIC) == before


@pytest.mark.parametrize("sent", [0, 1, 20])
def test_a_body_that_breaks_off_writes_nothing(
    gateway: GatewayProcess, api: Api, sent: int
) -> None:
    before = api.high_watermark(TOPIC)
    for head in (produce_head(f"Content-Length: {len(BODY)}"),):
        with closing(connect(gateway)) as connection:
            connection.sendall(head + BODY[:sent])
    chunk = f"{len(BODY):x}\r\n".encode() + BODY + b"\r\n"
    with closing(connect(gateway)) as connection:
        # All of the records, but not the end of the body: it may have been going on.
        connection.sendall(produce_head("Transfer-Encoding: chunked") + chunk)
    wait_until_nothing_is_held(api)
    assert api.high_watermark(TOPIC) == before


def test_a_client_that_hangs_up_while_it_waits_is_forgotten(
    gateway: GatewayProcess, api: Api
) -> None:
    for path in (
        f"/v1/topics/{TOPIC}/partitions/0/records?at=latest&max_wait_ms=60000",
        f"/v1/topics/{TOPIC}/partitions/0/records?at=latest",
    ):
        accept = "text/event-stream" if "wait" not in path else "application/json"
        for _ in range(20):
            with closing(connect(gateway)) as connection:
                request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
                connection.sendall(request.encode())
    api.produce(TOPIC, [{"value": "v"}])


def test_a_chunked_body_is_a_body(gateway: GatewayProcess, api: Api) -> None:
    before = api.high_watermark(TOPIC)
    chunks = b"".join(b"1\r\n" + BODY[i : i + 1] + b"\r\n" for i in range(len(BODY)))
    reply = exchange(
        gateway,
        produce_head("Transfer-Encoding: chunked", "Connection: close"),
        chunks + b"0\r\n\r\n",
    )
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert api.high_watermark(TOPIC) == before + 1


def test_a_request_that_comes_byte_by_byte(gateway: GatewayProcess, api: Api) -> None:
    request = produce_head(f"Content-Length: {len(BODY)}", "Connection: close") + BODY
    reply = exchange(gateway, *(request[i : i + 1] for i in range(len(request))))
    assert reply.startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_their_order(gateway: GatewayProcess, api: Api) -> None:
    before = api.high_watermark(TOPIC)
    one = produce_head(f"Content-Length: {len(BODY)}") + BODY
    last = produce_head(f"Content-Length: {len(BODY)}", "Connection: close") + BODY
    with closing(connect(gateway)) as connection:
        connection.sendall(one * 9 + last)
        reply = read_all(connection)

    bodies = [part.split(b"\r\n\r\n", 1)[1] for part in reply.split(b"HTTP/1.1 200 ")[1:]]
    offsets = [json.loads(body)["results"][0]["base_offset"] for body in bodies]
    assert offsets == list(range(before, before + 10))


def test_a_client_may_ask_before_it_sends_the_body(gateway: GatewayProcess, api: Api) -> None:
    with closing(connect(gateway)) as connection:
        head = produce_head(
            f"Content-Length: {len(BODY)}", "Expect: 100-continue", "Connection: close"
        )
        connection.sendall(head)
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert read_all(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("path", "length", "status"),
    [
        (f"/v1/topics/{TOPIC}/records", 10**12, 413),
        (f"/v1/topics/{TOPIC}/records", 17 * 1024 * 1024, 413),
        ("/v1/topics/unknown/records", 1000, 404),
        (f"/v1/topics/{TOPIC}/records?acks=7", 1000, 400),
        ("/v1/fetch", 10**12, 413),
    ],
)
def test_what_can_be_refused_is_refused_before_the_body_comes(
    gateway: GatewayProcess, path: str, length: int, status: int
) -> None:
    with closing(connect(gateway)) as connection:
        lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {length}"]
        connection.sendall("\r\n".join([*lines, "Expect: 100-continue", "", ""]).encode())
        reply = connection.recv(65536)
    assert reply.startswith(f"HTTP/1.1 {status} ".encode()), reply
    assert b"application/problem+json" in reply


def test_a_connection_outlives_a_request_that_was_refused(api: Api) -> None:
    with httpx.Client(base_url=api.url, limits=httpx.Limits(max_connections=1)) as client:
        for _ in range(5):
            large = client.post(f"/v1/topics/{TOPIC}/records", content=b" " * 17 * 1024 * 1024)
            assert large.status_code == 413
            good = client.post(f"/v1/topics/{TOPIC}/records", content=BODY)
            assert good.status_code == 200


def test_hundreds_of_idle_connections_harm_nobody(gateway: GatewayProcess, api: Api) -> None:
    idle = [connect(gateway) for _ in range(300)]
    try:
        for connection in idle[::2]:
            connection.sendall(produce_head("Content-Length: 1000") + b"{")
        api.produce(TOPIC, [{"value": "v"}])
    finally:
        for connection in idle:
            connection.close()
