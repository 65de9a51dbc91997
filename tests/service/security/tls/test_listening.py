"""Whether callers must say who they are, and what the operator is told."""

from pathlib import Path

import pytest
import trustme

from service.security.tls.files import TlsFiles
from service.security.tls.listening import is_local, listening, security_of
from storage.errors import InvalidConfig
from tests.certificates import own
from tests.commands import exit_code

LOCAL = ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "::ffff:127.0.0.1", "localhost", "LocalHost.",
         "/run/riacho.sock", "unix:/run/riacho.sock"]  # fmt: skip
OTHERS = ["0.0.0.0", "::", "", "10.0.0.1", "::ffff:10.0.0.1", "localhost.example.org",
          "127.0.0.1.example.org", "127.1", "2130706433"]  # fmt: skip


@pytest.mark.parametrize("host", LOCAL)
def test_on_loopback_security_is_off_unless_it_is_turned_on(host: str) -> None:
    assert is_local(host)
    assert security_of(host) == "off"
    assert security_of(host, "off") == "off"
    assert security_of(host, "on") == "on"
    assert security_of(host, "on", insecure=True) == "on"


@pytest.mark.parametrize("host", OTHERS)
def test_elsewhere_security_is_on_unless_somebody_insists(host: str) -> None:
    assert not is_local(host)
    assert security_of(host) == "on"
    assert security_of(host, "on", insecure=True) == "on"
    assert security_of(host, insecure=True) == "off"
    assert security_of(host, "off", insecure=True) == "off"
    with pytest.raises(
        InvalidConfig, match=r"riacho keys create --super.*or insist with --insecure"
    ):
        security_of(host, "off")


def test_the_operator_is_told_what_is_dangerous(tmp_path: Path) -> None:
    def told(**given: object) -> str:
        return " ".join(listening(port=1, **given).warnings)  # type: ignore[arg-type]

    tls = TlsFiles(cert=own(trustme.CA(), tmp_path / "own.pem"))
    now_ms = 1_700_000_000_000

    assert told() == told(security="on") == ""
    assert "whoever reaches this port" in told(host="0.0.0.0", insecure=True)
    assert "credentials and records travel in the clear" in told(host="0.0.0.0")
    assert told(host="0.0.0.0", tls=tls, now_ms=now_ms) == ""
    assert "clients will refuse it" in told(host="0.0.0.0", tls=tls, now_ms=10**17)


def test_the_url_is_one() -> None:
    assert listening(host="::1", port=8080).url == "http://[::1]:8080"
    assert listening(port=0).port > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "0.0.0.0", "--security", "off"], "or insist with --insecure"),
        (["--security", "maybe"], "it can be on or off"),
        (["--tls-cert", "/nowhere/cert.pem"], "there is no such file"),
        (["--tls-key", "/nowhere/key.pem"], "give --tls-cert"),
        (["--tls-client-auth", "required", "--tls-cert", "x"], "needs --tls-client-ca"),
        (["--tls-self-signed", "--tls-cert", "x"], "a certificate already"),
    ],
)
def test_serve_ends_with_2_and_a_sentence(
    options: list[str], sentence: str, tmp_path: Path
) -> None:
    code, done = exit_code("serve", "--port", "0", "--data", str(tmp_path), *options, env={})

    assert code == 2
    assert sentence in " ".join(done.stderr.decode().split())
