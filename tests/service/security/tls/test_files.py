"""The files of TLS: what fits together is served, anything else is refused with a sentence."""

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from service.security.tls.files import (
    ClientAuth,
    TlsFiles,
    certificate_of,
    complaint,
    context_of,
    tls_files,
)
from service.security.tls.live import LiveContext
from service.security.tls.subjects import subject_of
from storage.errors import InvalidConfig
from tests.certificates import of_client, own, replaced

AUTHORITY = trustme.CA()


def certificate_in(path: Path) -> bytes:
    first = path.read_bytes().partition(b"-----BEGIN CERTIFICATE-----")
    return b"".join(first[1:])


def test_facts_are_those_of_the_certificate(tmp_path: Path) -> None:
    path = of_client(AUTHORITY, tmp_path / "own.pem", "ana")
    certificate = x509.load_pem_x509_certificate(certificate_in(path))

    facts = certificate_of(TlsFiles(cert=path))

    assert facts.not_after_s == certificate.not_valid_after_utc.timestamp()
    assert facts.not_before_s == certificate.not_valid_before_utc.timestamp()
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert subject_of(der).startswith("CN=ana,OU=Testing cert \\#")


def test_tls_is_1_2_at_least(tmp_path: Path) -> None:
    context = context_of(TlsFiles(cert=own(AUTHORITY, tmp_path / "own.pem")))

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    for cipher in context.get_ciphers():
        assert cipher["protocol"] == "TLSv1.3" or cipher["name"].startswith("ECDHE-"), cipher
        assert cipher["aead"], cipher


def encrypted(path: Path, password: bytes) -> Path:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password),
    )
    return replaced(path.with_name("encrypted.pem"), text)


def test_a_key_may_be_in_a_file_of_its_own_with_a_password(tmp_path: Path) -> None:
    path = own(AUTHORITY, tmp_path / "own.pem")
    certificate = replaced(tmp_path / "cert.pem", certificate_in(path))
    key = encrypted(path, b"hush")

    context_of(TlsFiles(cert=certificate, key=path))
    context_of(TlsFiles(cert=certificate, key=key, key_password="hush"))

    secret = replaced(tmp_path / "password", b"hush\n")
    context_of(TlsFiles(cert=certificate, key=key, key_password=f"${{file:{secret}}}"))
    secret.unlink()
    with pytest.raises(InvalidConfig, match="no such file"):
        context_of(TlsFiles(cert=certificate, key=key, key_password=f"${{file:{secret}}}"))

    with pytest.raises(InvalidConfig, match="is encrypted: RIACHO_TLS_KEY_PASSWORD"):
        context_of(TlsFiles(cert=certificate, key=key))
    wrong = TlsFiles(cert=certificate, key=key, key_password="loud")
    with pytest.raises(InvalidConfig, match="cannot be opened; is RIACHO_TLS_KEY_PASSWORD right"):
        context_of(wrong)
    assert "loud" not in repr(wrong)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = own(AUTHORITY, tmp_path / "own.pem")
    other = own(AUTHORITY, tmp_path / "other.pem")
    text = replaced(tmp_path / "text.pem", b"hello")
    broken = replaced(
        tmp_path / "broken.pem",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
    )
    alone = replaced(tmp_path / "cert.pem", certificate_in(path))
    cases = [
        (TlsFiles(cert=tmp_path / "none.pem"), "--tls-cert .*none.pem: there is no such file"),
        (TlsFiles(cert=tmp_path), "--tls-cert .*: Is a directory"),
        (TlsFiles(cert=text), "holds no certificate in PEM"),
        (TlsFiles(cert=broken), "cannot be read: not a certificate"),
        (TlsFiles(cert=alone), "holds no private key in PEM; --tls-key says where it is"),
        (TlsFiles(cert=path, key=text), "--tls-key .* holds no private key in PEM$"),
        (TlsFiles(cert=path, key=tmp_path / "none.pem"), "--tls-key .*: there is no such file"),
        (TlsFiles(cert=path, key=other), "does not belong to the certificate"),
        (TlsFiles(cert=path, client_ca=text), "--tls-client-ca .* holds no certificates in PEM"),
        (TlsFiles(cert=path, client_ca=tmp_path / "x"), "--tls-client-ca .*: there is no such"),
    ]
    for files, sentence in cases:
        with pytest.raises(InvalidConfig, match=sentence):
            context_of(files)


def test_options_say_whether_clients_show_certificates() -> None:
    def auth(**given: str) -> ClientAuth:
        options = {"cert": "c", "key": "", "key_password": "", "client_ca": "", "client_auth": ""}
        files = tls_files(**{**options, **given})
        assert files is not None
        return files.client_auth

    assert auth() is ClientAuth.NONE
    assert auth(client_ca="ca") is ClientAuth.REQUESTED
    assert auth(client_ca="ca", client_auth="required") is ClientAuth.REQUIRED
    assert auth(client_ca="ca", client_auth="none") is ClientAuth.NONE
    with pytest.raises(InvalidConfig, match="needs --tls-client-ca"):
        auth(client_auth="requested")
    with pytest.raises(InvalidConfig, match="required, requested, none"):
        auth(client_ca="ca", client_auth="maybe")
    with pytest.raises(InvalidConfig, match="--tls-client-ca says nothing without a certificate"):
        auth(cert="", client_ca="ca")


def test_a_certificate_that_clients_will_refuse_is_noticed(tmp_path: Path) -> None:
    past = AUTHORITY.issue_cert("localhost", not_after=datetime(2020, 1, 11, tzinfo=UTC))
    path = replaced(tmp_path / "own.pem", past.private_key_and_cert_chain_pem.bytes())

    facts = certificate_of(TlsFiles(cert=path))

    assert complaint(facts, facts.not_after_s - 1) == ""
    assert complaint(facts, facts.not_after_s + 10 * 86_400) == "expired 10 days ago"
    assert complaint(facts, facts.not_before_s - 1) == "is not valid yet"
    context_of(TlsFiles(cert=path))


def test_files_that_changed_are_taken_when_they_fit(tmp_path: Path) -> None:
    path = own(AUTHORITY, tmp_path / "own.pem")
    key = replaced(tmp_path / "key.pem", path.read_bytes())
    live = LiveContext(TlsFiles(cert=path, key=key), lambda: 0)

    assert not live.look()
    own(AUTHORITY, path)
    assert not live.look(), "the key is still that of the old certificate"
    replaced(key, path.read_bytes())
    assert live.look()
    assert not live.look()
    path.unlink()
    assert not live.look()
    own(AUTHORITY, path)
    replaced(key, path.read_bytes())
    assert live.look()
