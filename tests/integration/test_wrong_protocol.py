"""The log of a gateway names the mistake of a client at the wrong port, or with TLS alone."""

import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from tests.certificates import own, trusting
from tests.gateway import GatewayProcess, free_port, start_gateway

PATIENCE_S = 60.0

KAFKA = b"\0\0\0\x12\0\x12\0\3\0\0\0\1\0\4test\0\1x\1y\0"
"""ApiVersions, as Kafka's clients begin."""
HTTP = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Ports:
    """The two ports of a gateway, and its log."""

    def __init__(self, gateway: GatewayProcess, kafka: int) -> None:
        self.gateway = gateway
        self.http = gateway.port
        self.kafka = kafka

    def logs(self, text: str) -> None:
        """Wait until the log has a line with `text`."""
        give_up_s = time.monotonic() + PATIENCE_S
        while text not in self.gateway.log.read_text():
            assert time.monotonic() < give_up_s, self.gateway.log.read_text()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with _ports(tmp_path_factory.mktemp("plain")) as found:
        yield found


@pytest.fixture(scope="module")
def trusted() -> ssl.SSLContext:
    return trusting(_AUTHORITY)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, trusted: ssl.SSLContext) -> Iterator[Ports]:
    path = tmp_path_factory.mktemp("secure")
    certificate = str(own(_AUTHORITY, path / "gateway.pem"))
    with _ports(path, "--tls-cert", certificate, tls=trusted) as found:
        yield found


_AUTHORITY = trustme.CA()


@contextmanager
def _ports(path: Path, *args: str, tls: ssl.SSLContext | None = None) -> Iterator[Ports]:
    kafka = free_port()
    with start_gateway(path, "--kafka", f"127.0.0.1:{kafka}", *args, tls=tls) as gateway:
        ports = Ports(gateway, kafka)
        ports.logs("Kafka clients connect to")
        yield ports


def said(port: int, sent: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Return all that a port answers to `sent`, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        if context is not None:
            connection = context.wrap_socket(connection, server_hostname="localhost")
        with connection:
            connection.sendall(sent)
            answer = b""
            while part := connection.recv(65_536):
                answer += part
                head, _, body = answer.partition(b"\r\n\r\n")
                if b"content-length: %d\r\n" % len(body) in head:
                    break
            return answer


def problem(answer: bytes) -> str:
    """Return the detail of an answer of HTTP that refuses."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in head
    detail: str = json.loads(body)["detail"]
    return detail


def test_http_at_the_port_of_kafkas_clients(plain: Ports) -> None:
    assert plain.gateway.url in problem(said(plain.kafka, HTTP))
    plain.logs("a client at 127.0.0.1 speaks HTTP to the port of Kafka's clients")


def test_kafkas_protocol_at_the_port_of_http(plain: Ports) -> None:
    assert said(plain.http, KAFKA) == b""
    plain.logs("a client at 127.0.0.1 speaks Kafka's protocol to the port of HTTP")


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_tls_at_a_port_without_it(plain: Ports, trusted: ssl.SSLContext, port: str) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        said(getattr(plain, port), b"", trusted)
    advice = {"http": "its URL should begin with http://", "kafka": "should be PLAINTEXT"}
    plain.logs("a client at 127.0.0.1 speaks TLS to a port without it")
    plain.logs(advice[port])


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_http_without_tls_at_a_port_with_it(secure: Ports, port: str) -> None:
    assert "https://" in problem(said(getattr(secure, port), HTTP))
    secure.logs("a client speaks HTTP without TLS to a port with TLS")


@pytest.mark.parametrize("port", ["http", "kafka"])
def test_kafkas_protocol_without_tls_at_a_port_with_it(secure: Ports, port: str) -> None:
    said(getattr(secure, port), KAFKA)
    secure.logs("a client speaks Kafka's protocol without TLS to a port with TLS")


def test_http_with_tls_at_the_port_of_kafkas_clients(
    secure: Ports, trusted: ssl.SSLContext
) -> None:
    assert "Kafka's clients" in problem(said(secure.kafka, HTTP, trusted))


def test_kafkas_protocol_with_tls_at_the_port_of_http(
    secure: Ports, trusted: ssl.SSLContext
) -> None:
    assert said(secure.http, KAFKA, trusted) == b""
    secure.logs("speaks Kafka's protocol to the port of HTTP")
