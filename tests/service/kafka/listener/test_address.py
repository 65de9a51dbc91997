"""Where a gateway listens for Kafka's clients, and what it tells them."""

import socket

import pytest

from service.kafka.listener import address
from service.kafka.listener.address import (
    HostPort,
    advertised_address,
    bound,
    chosen,
    is_free,
    parse_address,
)
from service.kafka.listener.listener import open_sockets
from service.security.tls.listening import listening
from storage.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", HostPort("127.0.0.1", 9092)),
        ("[::1]:0", HostPort("::1", 0)),
        (":9092", HostPort("", 9092)),
        ("broker.example.org:65535", HostPort("broker.example.org", 65_535)),
    ],
)
def test_addresses(text: str, expected: HostPort) -> None:
    assert parse_address(text, "--kafka") == expected


@pytest.mark.parametrize(
    "text", ["9092", "a:", "a:b", "a:70000", "::1:9092", "a b:1", "a:-1", "PLAINTEXT://a:1", "a:1٣"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidConfig, match="host:port"):
        parse_address(text, "--kafka")


@pytest.mark.parametrize(
    ("host", "own", "advertised", "expected"),
    [
        ("127.0.0.1", 9092, "", HostPort("127.0.0.1", 9092)),
        ("localhost", 9092, "", HostPort("127.0.0.1", 9092)),
        ("0.0.0.0", 9092, "", HostPort(socket.gethostname(), 9092)),
        ("0.0.0.0", 9092, "kafka.example.org:443", HostPort("kafka.example.org", 443)),
        ("0.0.0.0", 9095, "kafka.example.org:19092", HostPort("kafka.example.org", 19_095)),
    ],
)
def test_what_clients_are_told(host: str, own: int, advertised: str, expected: HostPort) -> None:
    assert advertised_address(HostPort(host, 9092), own, advertised) == expected


def test_nobody_can_connect_to_all_interfaces() -> None:
    with pytest.raises(InvalidConfig, match="all interfaces"):
        advertised_address(HostPort("0.0.0.0", 9092), 9092, "0.0.0.0:9092")


@pytest.mark.parametrize("shares", [False, True])
def test_a_port_is_taken_also_if_it_is_shared(shares: bool) -> None:
    with bound(HostPort("127.0.0.1", 0), shares_port=shares) as other:
        taken = HostPort("127.0.0.1", other.getsockname()[1])
        assert not is_free(taken)
        with pytest.raises(InvalidConfig, match="another process listens there"):
            chosen(str(taken), "", 1)
    assert is_free(taken)
    assert chosen(str(taken), "", 1) == (str(taken), taken, "")


def test_a_default_that_is_taken_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    with bound(HostPort("127.0.0.1", 0)) as other:
        taken = HostPort("127.0.0.1", other.getsockname()[1])
        monkeypatch.setattr(address, "DEFAULT_ADDRESS", taken)
        text, where, warning = chosen("", "", 1)
    assert (text, where) == ("off", None)
    assert "serves HTTP only" in warning
    assert chosen("", "", 1) == ("default", taken, "")
    assert chosen("", "", 4) == (str(taken), taken, "")
    assert chosen("off", "", 1) == ("off", None, "")


def test_workers_share_a_port_and_have_one_each() -> None:
    with bound(HostPort("127.0.0.1", 0)) as free:
        shared = HostPort("127.0.0.1", free.getsockname()[1])
    opened = [open_sockets(shared, "", is_shared=True) for _ in range(3)]
    try:
        assert {sockets[0].getsockname()[1] for sockets, _ in opened} == {shared.port}
        told = [where.port for _, where in opened]
        assert len({shared.port, *told}) == 4
        assert told == [sockets[1].getsockname()[1] for sockets, _ in opened]
    finally:
        for sockets, _ in opened:
            for each in sockets:
                each.close()


def test_the_address_for_kafka_counts_for_security() -> None:
    assert listening(port=1, kafka_host="127.0.0.1").security == "off"
    assert listening(port=1, kafka_host="0.0.0.0").security == "on"
    assert listening(port=1, kafka_host="0.0.0.0", insecure=True).security == "off"
    with pytest.raises(InvalidConfig, match=r"--security off with --kafka 0\.0\.0\.0"):
        listening(port=1, kafka_host="0.0.0.0", security="off")
