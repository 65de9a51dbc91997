"""TLS of real gateways: certificates that are replaced under load, clients that show theirs."""

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme

from tests.certificates import NAMES, of_client, own, replaced, served_now, trusting
from tests.gateway import GatewayProcess, start_gateway

PATIENCE_S = 60.0
RULES = "RULE:^CN=(.*?),.*$/$1/L,DEFAULT"


def wait_for(condition: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < give_up_s, "waited in vain"
        time.sleep(0.05)


class Load:
    """Requests without a pause, some on open connections, some each on a new one."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._gateway = gateway
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(keeps_open,)) for keeps_open in (True, False)
        ]
        self.failures: list[str] = []
        self.answered = {True: 0, False: 0}

    def _run(self, keeps_open: bool) -> None:
        limits = httpx.Limits(max_keepalive_connections=1 if keeps_open else 0)
        assert self._gateway.tls is not None
        with httpx.Client(verify=self._gateway.tls, limits=limits, timeout=PATIENCE_S) as client:
            while not self._over.is_set():
                url = f"{self._gateway.url}/v1/topics/orders/records"
                try:
                    reply = client.post(url, json={"records": [{"value": "x"}]})
                    reply.raise_for_status()
                except httpx.HTTPError as error:
                    self.failures.append(repr(error))
                self.answered[keeps_open] += 1

    def goes_on(self) -> None:
        """Wait until more of both kinds were answered."""
        before = dict(self.answered)
        wait_for(lambda: all(self.answered[kind] > before[kind] + 3 for kind in before))

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def leaf(pem: bytes) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(pem.decode()))


def test_certificates_are_replaced_under_load(tmp_path: Path) -> None:
    first, second = trustme.CA(), trustme.CA()
    cert = own(first, tmp_path / "cert.pem")
    key = replaced(tmp_path / "key.pem", cert.read_bytes())
    options = ("--tls-cert", str(cert), "--tls-key", str(key), "--workers", "2")
    with start_gateway(tmp_path, *options, tls=trusting(first, second)) as gateway:
        assert gateway.tls is not None
        httpx.post(
            f"{gateway.url}/v1/topics", json={"name": "orders"}, verify=gateway.tls, timeout=60
        ).raise_for_status()
        before = served_now(gateway.port)

        def all_workers_serve(pem: str) -> bool:
            return all(served_now(gateway.port) == pem for _ in range(12))

        with Load(gateway) as load:
            load.goes_on()
            issued = second.issue_cert(*NAMES)
            replaced(cert, b"".join(each.bytes() for each in issued.cert_chain_pems))
            # Half a change: certificate and key do not fit together.
            wait_for(lambda: gateway.log.read_text().count("the new files are no use") == 2)
            load.goes_on()
            assert all_workers_serve(before)
            replaced(key, issued.private_key_pem.bytes())
            wait_for(lambda: all_workers_serve(leaf(issued.cert_chain_pems[0].bytes())))
            load.goes_on()
        assert load.failures == []
        cluster = httpx.get(f"{gateway.url}/v1/cluster", verify=gateway.tls).json()
        assert {each["url"] for each in cluster["gateways"]} == {
            f"https://127.0.0.1:{gateway.port}"
        }


AUTHORITY = trustme.CA()
OTHER = trustme.CA()


@contextmanager
def serving(tmp_path: Path, *options: str, client: Path | None = None) -> Iterator[GatewayProcess]:
    cert = own(AUTHORITY, tmp_path / "own.pem")
    ca = tmp_path / "clients.pem"
    AUTHORITY.cert_pem.write_to_path(ca)
    environment = {
        "RIACHO_TLS_CERT": str(cert),
        "RIACHO_TLS_CLIENT_CA": str(ca),
        "RIACHO_SECURITY": "on",
        "RIACHO_SUPER_USERS": "User:ana",
        "RIACHO_SSL_PRINCIPAL_MAPPING_RULES": RULES,
    }
    trust = trusting(AUTHORITY, client=client)
    with start_gateway(tmp_path, *options, env=environment, tls=trust) as gateway:
        yield gateway


def asked(gateway: GatewayProcess, client: Path | None = None) -> httpx.Response:
    trust = trusting(AUTHORITY, client=client)
    return httpx.get(f"{gateway.url}/v1/whoami", verify=trust, timeout=PATIENCE_S)


def test_a_client_certificate_says_who_calls(tmp_path: Path) -> None:
    ana = of_client(AUTHORITY, tmp_path / "ana.pem", "Ana")
    stranger = of_client(OTHER, tmp_path / "stranger.pem", "Ana")
    with serving(tmp_path) as gateway:
        reply = asked(gateway, ana)
        assert reply.status_code == 200, reply.text
        assert reply.json()["principal"] == "User:ana"
        assert reply.json()["super"] is True
        assert asked(gateway).status_code == 401
        with pytest.raises(httpx.TransportError):
            asked(gateway, stranger)

        # Other authorities for clients: open connections go on, new ones are judged anew.
        with httpx.Client(verify=trusting(AUTHORITY, client=ana)) as connected:
            connected.get(f"{gateway.url}/v1/whoami").raise_for_status()
            replaced(tmp_path / "clients.pem", OTHER.cert_pem.bytes())
            gateway.process.send_signal(signal.SIGHUP)
            wait_for(lambda: "TLS: new certificate" in gateway.log.read_text())
            assert asked(gateway, stranger).json()["principal"] == "User:ana"
            with pytest.raises(httpx.TransportError):
                asked(gateway, ana)
            connected.get(f"{gateway.url}/v1/whoami").raise_for_status()


def test_a_client_certificate_can_be_required(tmp_path: Path) -> None:
    ana = of_client(AUTHORITY, tmp_path / "ana.pem", "Ana")
    with serving(tmp_path, "--tls-client-auth", "required", client=ana) as gateway:
        assert asked(gateway, ana).status_code == 200
        with pytest.raises(httpx.TransportError):
            asked(gateway)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
def test_a_client_certificate_that_nobody_asks_for_says_nothing(tmp_path: Path) -> None:
    ana = of_client(AUTHORITY, tmp_path / "ana.pem", "Ana")
    with serving(tmp_path, "--tls-client-auth", "none") as gateway:
        assert asked(gateway, ana).status_code == 401
        with pytest.raises(httpx.TransportError, match="certificate verify failed"):
            httpx.get(gateway.url, verify=trusting(OTHER))
        _versions(gateway.port)


def _versions(port: int) -> None:
    """Try every version of TLS."""
    assert _spoken(port, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
    assert _spoken(port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        # What the gateway does: our own side would say that it has no protocols or ciphers.
        with pytest.raises(OSError, match=r"EOF occurred|alert protocol version|reset by peer"):
            _spoken(port, version)


def _spoken(port: int, version: ssl.TLSVersion) -> Any:
    context = trusting(AUTHORITY)
    # Else our own side would refuse the old ones.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        return encrypted.version()


def test_a_gateway_makes_its_own_certificate_and_curl_believes_it(tmp_path: Path) -> None:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    for _ in range(2):
        with start_gateway(tmp_path, "--tls-self-signed", tls=trust) as gateway:
            made = tmp_path / "data/tls"
            assert stat.S_IMODE((made / "server.pem").stat().st_mode) == 0o600
            seen = served_now(gateway.port)
            lines = gateway.log.read_text().splitlines()
            [command] = {line.strip() for line in lines if line.startswith("  curl ")
                         and line.endswith(f":{gateway.port}/ready")}  # fmt: skip
            done = subprocess.run(
                [*command.split(), "-sS"], capture_output=True, timeout=PATIENCE_S
            )
            assert done.stdout == b'{"status":"ok"}', done.stderr
    assert seen.encode() in (made / "server.pem").read_bytes()


def test_beyond_loopback_a_gateway_is_closed_and_healthy(tmp_path: Path) -> None:
    with start_gateway(tmp_path, "--host", "0.0.0.0", "--workers", "2") as gateway:
        assert httpx.get(gateway.url + "/v1/topics").status_code == 401
        assert httpx.get(gateway.url + "/healthy").status_code == 200
        log = gateway.log.read_text()
        assert "riacho keys create --super" in log
        assert "travel in the clear" in log
    open_one = tmp_path / "open"
    open_one.mkdir()
    with start_gateway(open_one, "--host", "0.0.0.0", "--insecure") as gateway:
        assert httpx.get(gateway.url + "/v1/topics").status_code == 200
        assert "whoever reaches this port may read" in gateway.log.read_text()


def test_tls_survives_a_reload_of_the_code(tmp_path: Path) -> None:
    cert = own(AUTHORITY, tmp_path / "own.pem")
    options = ("--tls-cert", str(cert), "--reload")
    with start_gateway(tmp_path, *options, tls=trusting(AUTHORITY)) as gateway:
        reply = httpx.get(f"{gateway.url}/v1/topics", verify=trusting(AUTHORITY))
        assert reply.status_code == 200


def test_the_health_check_of_the_image_speaks_tls_where_the_gateway_does(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "Dockerfile").read_text()
    [command] = re.findall(r"HEALTHCHECK .*\\\n +CMD (.*)", text)
    cert = own(AUTHORITY, tmp_path / "own.pem")

    def is_healthy(gateway: GatewayProcess) -> bool:
        env = {**os.environ, "RIACHO_PORT": str(gateway.port)}
        if gateway.tls is not None:
            env["RIACHO_TLS_CERT"] = str(cert)
        words = [sys.executable, *json.loads(command)[1:]]
        return subprocess.run(words, env=env, timeout=PATIENCE_S).returncode == 0

    with start_gateway(tmp_path, "--tls-cert", str(cert), tls=trusting(AUTHORITY)) as gateway:
        assert is_healthy(gateway)
    assert not is_healthy(gateway)
    with start_gateway(tmp_path, "--host", "0.0.0.0") as gateway:
        assert is_healthy(gateway)
