"""A certificate that a gateway makes for itself: made once, and for its user only."""

import socket
import stat
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from service.security.tls.files import TlsFiles, context_of
from service.security.tls.self_signed import LEFT_DAYS_MIN, VALID_DAYS, names_of, self_signed

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def test_a_certificate_is_made_once_and_renewed_in_time(tmp_path: Path) -> None:
    own, for_clients = self_signed(tmp_path / "tls", "0.0.0.0", NOW_MS)
    first, authority = own.read_bytes(), for_clients.read_bytes()

    self_signed(tmp_path / "tls", "127.0.0.1", NOW_MS + (VALID_DAYS - LEFT_DAYS_MIN - 1) * DAY_MS)
    assert (own.read_bytes(), for_clients.read_bytes()) == (first, authority)

    self_signed(tmp_path / "tls", "0.0.0.0", NOW_MS + (VALID_DAYS - LEFT_DAYS_MIN + 1) * DAY_MS)
    assert own.read_bytes() != first
    assert for_clients.read_bytes() != authority
    assert sorted(path.name for path in (tmp_path / "tls").iterdir()) == ["ca.pem", "server.pem"]


def test_it_is_made_again_for_another_name(tmp_path: Path) -> None:
    own, _ = self_signed(tmp_path, "127.0.0.1", NOW_MS)
    first = own.read_bytes()

    self_signed(tmp_path, "log.example.org", NOW_MS)

    assert own.read_bytes() != first
    [certificate, _] = x509.load_pem_x509_certificates(own.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "log.example.org" in found.get_values_for_type(x509.DNSName)
    assert socket.gethostname() in found.get_values_for_type(x509.DNSName)


def test_the_key_is_for_its_user_and_that_of_the_authority_is_gone(tmp_path: Path) -> None:
    own, for_clients = self_signed(tmp_path, "127.0.0.1", NOW_MS)

    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert own.read_bytes().count(b"PRIVATE KEY-----") == 2
    assert b"PRIVATE" not in for_clients.read_bytes()
    [authority] = x509.load_pem_x509_certificates(for_clients.read_bytes())
    [certificate, _] = x509.load_pem_x509_certificates(own.read_bytes())
    certificate.verify_directly_issued_by(authority)
    assert isinstance(authority.public_key(), ec.EllipticCurvePublicKey)
    context_of(TlsFiles(cert=own))


def test_what_a_crash_left_is_made_whole(tmp_path: Path) -> None:
    own, for_clients = self_signed(tmp_path, "127.0.0.1", NOW_MS)
    authority = for_clients.read_bytes()

    for_clients.unlink()
    self_signed(tmp_path, "127.0.0.1", NOW_MS)
    assert for_clients.read_bytes() == authority

    own.write_bytes(own.read_bytes()[:300])
    self_signed(tmp_path, "127.0.0.1", NOW_MS)
    context_of(TlsFiles(cert=own))


def test_the_names_are_those_that_clients_use() -> None:
    assert names_of("0.0.0.0") == ["localhost", "127.0.0.1", "::1", socket.gethostname()]
    assert names_of("::1")[:3] == ["localhost", "127.0.0.1", "::1"]
