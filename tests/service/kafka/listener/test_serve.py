"""`riacho serve` for Kafka's clients: workers, a signal, an address that is taken."""

import time
from pathlib import Path

from confluent_kafka.admin import AdminClient

from service.kafka.listener.address import HostPort, bound
from tests.commands import exit_code
from tests.gateway import START_TIMEOUT_S, free_port, start_gateway


def brokers(client: AdminClient) -> dict[int, int]:
    """Return the ports of all brokers by node id."""
    return {b.id: b.port for b in client.list_topics(timeout=30).brokers.values()}


def test_each_worker_is_a_broker_and_a_signal_ends_all(tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with start_gateway(tmp_path, "--workers", "2", "--kafka", address) as gateway:
        client = AdminClient({"bootstrap.servers": address, "log_level": 0})
        give_up_s = time.monotonic() + START_TIMEOUT_S
        while len(found := brokers(client)) < 2 and time.monotonic() < give_up_s:
            time.sleep(0.1)
        assert len(set(found.values())) == 2
        assert port not in found.values()
        code, done = exit_code(
            "serve", "--port", "0", "--data", str(tmp_path / "b"), "--kafka", address, env={}
        )
        assert code == 2
        assert "another process listens there" in " ".join(done.stderr.decode().split())
        gateway.stop()
        assert gateway.process.returncode in (0, -15)


def test_without_an_address_that_is_wanted_nothing_starts(tmp_path: Path) -> None:
    with bound(HostPort("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        code, done = exit_code(
            "serve", "--port", "0", "--data", str(tmp_path), "--kafka", address, env={}
        )
    assert code == 2
    assert "another process listens there" in " ".join(done.stderr.decode().split())
