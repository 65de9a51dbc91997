"""A token that holds names its principal; every other one is refused, whatever is wrong with it."""

import asyncio
import base64
import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, Key, RSAKey
from joserfc.jws import JWSRegistry

from service.security.oidc import fetching
from service.security.oidc.fetching import DocumentFetcher
from service.security.oidc.key_source import FRESH_S, KEPT_S_MAX, PAUSE_S, KeySource
from service.security.oidc.verifier import REMEMBERED_MAX, JwtVerifier, verifier_of
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import InvalidConfig, Unauthenticated, Unavailable
from tests.service.security.oidc.provider import (
    EC,
    ED,
    NOW_S,
    RSA,
    WELL_KNOWN,
    Clock,
    Provider,
    authority,
    provider,
    public,
    signed,
)

pytestmark = pytest.mark.anyio

OTHER = RSAKey.generate_key(2048, {"kid": "rsa"})
NEW = RSAKey.generate_key(2048, {"kid": "new"})


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def verifier(idp: Provider, clock: Clock, **changed: Any) -> JwtVerifier:
    given = {"jwt_issuer": idp.url, "jwt_audience": "riacho,other", **changed}
    world = replace(real_world(), now_ms=clock.now_ms, monotonic_s=clock.monotonic_s)
    made = verifier_of(Settings(**given), world)
    assert made is not None
    return made


async def refusal(made: JwtVerifier, token: str) -> str:
    """Return why a token is refused, twice: the second time it is remembered, or judged anew."""
    reasons = []
    for _ in range(2):
        with pytest.raises(Unauthenticated) as caught:
            await made.verify(token)
        reasons.append(str(caught.value))
    assert reasons[0] == reasons[1]
    assert "ana" not in reasons[0]
    return reasons[0]


@pytest.mark.parametrize(("key", "alg"), [(RSA, "RS256"), (EC, "ES256"), (ED, "EdDSA")])
@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
async def test_a_signed_token_names_its_principal(
    idp: Provider, clock: Clock, key: Key, alg: str
) -> None:
    found = await verifier(idp, clock).verify(idp.token(key, alg, jti="7", secret="s"))

    assert found.principal == "User:ana"
    assert found.expires_ms == (NOW_S + 3600 + 30) * 1000
    assert found.claims == {"iss": idp.url, "sub": "ana", "jti": "7"}
    assert idp.asked == [WELL_KNOWN, "/keys"]


@pytest.mark.parametrize("alg", ["RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_other_algorithms_are_accepted_where_they_are_listed(
    idp: Provider, clock: Clock, alg: str
) -> None:
    token = idp.token(alg=alg)

    assert "RIACHO_JWT_ALGORITHMS" in await refusal(verifier(idp, clock), token)
    made = verifier(idp, clock, jwt_algorithms=f"ES256, {alg}")
    assert (await made.verify(token)).principal == "User:ana"


async def test_ed25519_is_another_name_of_eddsa(idp: Provider, clock: Clock) -> None:
    idp.keys[2]["alg"] = "Ed25519"
    token = idp.token(ED, "Ed25519")
    assert (await verifier(idp, clock).verify(token)).principal == "User:ana"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"aud": "another"}, "(aud)"),
        ({"aud": ["another", 7]}, "(aud)"),
        ({"aud": None}, "(aud)"),
        ({"iss": "https://issuer.example.org"}, "(iss)"),
        ({"iss": None}, "(iss)"),
        ({"exp": None}, "(exp)"),
        ({"exp": NOW_S - 61}, "expired"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": "9999999999"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"nbf": NOW_S + 31}, "(nbf)"),
        ({"nbf": [1]}, "nbf"),
        ({"iat": NOW_S + 31}, "(iat)"),
        ({"sub": None}, "'sub'"),
        ({"sub": ""}, "'sub'"),
        ({"sub": 7}, "'sub'"),
        ({"sub": "line\nbreak"}, "'sub'"),
        ({"sub": "x" * 300}, "'sub'"),
    ],
)
async def test_claims_that_do_not_hold_are_refused(
    idp: Provider, clock: Clock, changed: dict[str, Any], reason: str
) -> None:
    assert reason in await refusal(verifier(idp, clock), idp.token(**changed))


async def test_clocks_may_differ_by_the_skew(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock)
    for changed in ({"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"iat": NOW_S + 29}):
        assert (await made.verify(idp.token(**changed))).principal == "User:ana"
    strict = verifier(idp, clock, jwt_clock_skew_s=0)
    assert "expired" in await refusal(strict, idp.token(exp=NOW_S))
    with pytest.raises(ValueError, match="60"):
        verifier(idp, clock, jwt_clock_skew_s=61)


async def test_one_of_several_audiences_is_enough(idp: Provider, clock: Clock) -> None:
    assert await verifier(idp, clock).verify(idp.token(aud=["x", "other"]))


def forgeries(idp: Provider) -> dict[str, str]:
    """Return tokens that nobody but the provider should be able to make, or that it did not."""
    claims = idp.claims()
    pem = RSA.as_pem(private=False)
    rsa = {"alg": "RS256", "kid": "rsa"}
    header, body, signature = signed(claims, RSA, rsa).split(".")
    nothing = _part({"alg": "none", "kid": "rsa"})
    shared = f"{_part({'alg': 'HS256', 'kid': 'rsa'})}.{body}"
    critical = f"{_part({**rsa, 'crit': ['exp'], 'exp': 1})}.{body}"
    sealed = _text(hmac.digest(pem, shared.encode(), "sha256"))
    return {
        "alg none": f"{nothing}.{body}.",
        "alg none, signed": f"{nothing}.{body}.{signature}",
        "HS256 with the public key": f"{shared}.{sealed}",
        "another key of the same name": signed(claims, OTHER, rsa),
        "its own key in jwk": signed(claims, OTHER, {**rsa, "jwk": public(OTHER)[0]}),
        "jku": signed(claims, OTHER, {**rsa, "jku": f"{idp.url}/keys"}),
        "x5u": signed(claims, OTHER, {**rsa, "x5u": f"{idp.url}/keys"}),
        "crit": f"{critical}.{_text(JWSRegistry.algorithms['RS256'].sign(critical.encode(), RSA))}",
        "an algorithm of another key": signed(claims, EC, {"alg": "ES256", "kid": "rsa"}),
        "other claims": f"{header}.{_part({**claims, 'sub': 'root'})}.{signature}",
        "a cut signature": f"{header}.{body}.{signature[:-8]}",
        "a token to log out": signed(claims, RSA, {**rsa, "typ": "logout+jwt"}),
        "100 KB": signed({**claims, "x": "y" * 75_000}, RSA, rsa),
        "deep": f"{header}.{_text(b'[' * 5000)}.{signature}",
    }


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _part(value: object) -> str:
    return _text(json.dumps(value).encode())


async def test_forged_tokens_are_refused(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock)
    for name, token in forgeries(idp).items():
        assert await refusal(made, token), name
    assert idp.asked.count("/keys") == 1


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "a.b.c.d", "é.é.é", "\ud800.a.b", "."])
async def test_what_is_no_token_is_refused(idp: Provider, clock: Clock, token: str) -> None:
    assert await refusal(verifier(idp, clock), token)
    assert not idp.asked


@pytest.mark.filterwarnings("ignore:Key size should be")
async def test_keys_that_are_not_for_this_are_not_used(idp: Provider, clock: Clock) -> None:
    weak = RSAKey.generate_key(1024, {"kid": "weak"})
    token = idp.token(weak)
    [rsa] = public(RSA)
    curve = ECKey.generate_key("P-384", {"kid": "p384"})
    unusable = {
        "weak": public(weak)[0],
        "use": {**rsa, "use": "enc"},
        "ops": {**rsa, "key_ops": ["sign"]},
        "alg": {**rsa, "alg": "RS512"},
        "private": RSA.as_dict(private=True),
        "exponent": {**rsa, "e": "AQ"},
        "number": {**rsa, "n": 7},
        "kind": {**rsa, "kty": "oct"},
        "curve": public(curve)[0],
        "point": {**public(EC)[0], "y": public(EC)[0]["x"]},
    }
    idp.keys = [{**key, "kid": name} for name, key in unusable.items()] + [7, {}]  # type: ignore[list-item]
    idp.keys += public(RSA)
    made = verifier(idp, clock)

    assert "kid" in await refusal(made, token)
    for name in unusable:
        key, alg = (EC, "ES256") if name in ("curve", "point") else (RSA, "RS256")
        claimed = signed(idp.claims(), key, {"alg": alg, "kid": name})
        assert "kid" in await refusal(made, claimed), name
    assert await made.verify(idp.token())


async def test_a_key_without_a_name_is_used_if_it_is_the_only_one(
    idp: Provider, clock: Clock
) -> None:
    token = signed(idp.claims(), RSA, {"alg": "RS256"})
    assert (await verifier(idp, clock).verify(token)).principal == "User:ana"
    idp.keys += public(NEW)
    assert "kid" in await refusal(verifier(idp, clock), token)


async def test_claim_rules_and_scope_are_those_of_the_settings(idp: Provider, clock: Clock) -> None:
    made = verifier(
        idp,
        clock,
        jwt_principal_claim="client_id",
        jwt_principal_mapping_rules=r"RULE:svc-(.*)/oidc-$1/U",
        jwt_required_scope="riacho",
    )
    for scope in ({"scope": "openid riacho"}, {"scp": ["riacho"]}, {"scp": "riacho"}):
        found = await made.verify(idp.token(client_id="svc-billing", **scope))
        assert found.principal == "User:OIDC-BILLING"
    assert "SCOPE" in await refusal(made, idp.token(client_id="svc-x", scope="riacho2"))
    assert "SCOPE" in await refusal(made, idp.token(client_id="svc-x"))
    assert "RULES" in await refusal(made, idp.token(client_id="x", scope="riacho"))


async def test_an_address_must_be_verified(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock, jwt_principal_claim="email")
    address = {"email": "a@example.org"}
    assert "e-mail" in await refusal(made, idp.token(**address, email_verified=False))
    assert (await made.verify(idp.token(**address))).principal == "User:a@example.org"


async def test_a_verdict_is_remembered_but_not_beyond_its_token(
    idp: Provider, clock: Clock
) -> None:
    made = verifier(idp, clock)
    long, short = idp.token(), idp.token(exp=NOW_S + 20)
    assert await made.verify(long) is await made.verify(long)
    await made.verify(short)
    clock.passed_s = 51
    assert "expired" in await refusal(made, short)
    clock.passed_s = 61
    again = await made.verify(long)
    assert again is await made.verify(long)


async def test_what_is_remembered_is_bounded(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock)
    for number in range(REMEMBERED_MAX + 10):
        with pytest.raises(Unauthenticated):
            await made.verify(f"{number}.a.b")
    assert len(made._bad._verdicts) == REMEMBERED_MAX


async def test_a_rotated_key_is_found_and_the_old_one_forgotten(
    idp: Provider, clock: Clock
) -> None:
    made = verifier(idp, clock)
    old, new = idp.token(), idp.token(NEW)
    await made.verify(old)
    idp.keys = public(NEW)
    # Just read: a name that anybody can make up is no reason to ask again so soon.
    assert "kid" in await refusal(made, new)
    assert idp.asked.count("/keys") == 1
    clock.passed_s = PAUSE_S + 1
    assert (await made.verify(new)).principal == "User:ana"
    assert "kid" in await refusal(made, old)
    assert idp.asked.count("/keys") == 2


async def test_unknown_names_make_one_request_a_minute(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock)
    await made.verify(idp.token())
    clock.passed_s = PAUSE_S + 1
    for number in range(50):
        name = {"alg": "RS256", "kid": f"made up {number}"}
        assert "kid" in await refusal(made, signed(idp.claims(), OTHER, name))
    assert idp.asked.count("/keys") == 2


async def test_many_tokens_at_once_wait_for_one_request(idp: Provider, clock: Clock) -> None:
    made = verifier(idp, clock)
    idp.stalled.clear()
    calls = [asyncio.create_task(made.verify(idp.token(jti=str(n)))) for n in range(30)]
    while "/keys" not in idp.asked:
        await asyncio.sleep(0.01)
    calls[0].cancel()
    idp.stalled.set()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert {each.principal for each in found[1:]} == {"User:ana"}  # type: ignore[union-attr]
    assert idp.asked == [WELL_KNOWN, "/keys"]


async def test_the_last_good_keys_serve_while_the_provider_is_down(
    idp: Provider, clock: Clock
) -> None:
    made = verifier(idp, clock)
    await made.verify(idp.token())
    idp.status = 503
    for passed_s in (FRESH_S + 1, FRESH_S + 2, FRESH_S + PAUSE_S + 2):
        clock.passed_s = passed_s
        assert await made.verify(idp.token(jti=str(passed_s)))
    assert idp.asked.count("/keys") == 3
    clock.passed_s = KEPT_S_MAX + 1
    late = idp.token(exp=NOW_S + 10**6)
    with pytest.raises(Unavailable):
        await made.verify(late)
    idp.status = 200
    clock.passed_s += PAUSE_S + 1
    assert await made.verify(late)


@pytest.mark.parametrize(
    "trouble", ["down", "error", "redirect", "large", "compressed", "many", "text"]
)
async def test_a_provider_that_misbehaves_is_not_believed(
    idp: Provider, clock: Clock, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    changed = {}
    match trouble:
        case "down":
            changed["jwt_jwks"] = "http://127.0.0.1:1/keys"
        case "error":
            idp.status = 500
        case "redirect":
            idp.status, idp.headers = 302, {"location": f"{idp.url}/elsewhere"}
        case "large":
            idp.padding = fetching.DOCUMENT_BYTES_MAX
        case "compressed":
            idp.headers = {"content-encoding": "gzip"}
        case "many":
            idp.keys = [{"kty": "RSA"}] * 101
        case "text":
            idp.keys = "none"  # type: ignore[assignment]
    made = verifier(idp, clock, **changed)
    with pytest.raises(Unavailable) as caught:
        await made.verify(idp.token())
    assert idp.url not in str(caught.value)
    assert "were not read" in caplog.text
    assert "/elsewhere" not in idp.asked


async def test_a_slow_provider_is_given_up(idp: Provider) -> None:
    idp.stalled.clear()
    keys = KeySource(idp.url, "", DocumentFetcher(s_max=0.3), real_world())
    with pytest.raises(Unavailable):
        await keys.candidates("rsa", "RS256")


@pytest.mark.parametrize(
    "about",
    [
        {"issuer": "https://issuer.example.org"},
        {"issuer": None},
        {"jwks_uri": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://192.0.2.1/keys"},
        {"jwks_uri": "https://user@127.0.0.1/keys"},
        {"jwks_uri": "https://127.0.0.1:99999/keys"},
        {"jwks_uri": "https://169.254.169.254/latest/meta-data"},
        {"jwks_uri": "https://10.0.0.1/keys"},
        {"jwks_uri": "https://2130706433/keys"},
        {"jwks_uri": "https://[::ffff:10.0.0.1]/keys"},
        {"jwks_uri": "https://[fe80::1%25lo]/keys"},
    ],
)
async def test_a_description_leads_nowhere_it_should_not(
    idp: Provider, clock: Clock, about: dict[str, Any]
) -> None:
    idp.about = about
    with pytest.raises(Unavailable):
        await verifier(idp, clock).verify(idp.token())
    assert idp.asked == [WELL_KNOWN]


async def test_keys_may_be_in_a_file(tmp_path: Path, idp: Provider, clock: Clock) -> None:
    file = tmp_path / "keys.json"
    made = verifier(idp, clock, jwt_jwks=str(file), jwt_issuer="https://issuer.example.org")
    token = idp.token(iss="https://issuer.example.org")
    with pytest.raises(Unavailable):
        await made.verify(token)
    file.write_text(json.dumps({"keys": public(RSA)}))
    clock.passed_s = 6
    assert (await made.verify(token)).principal == "User:ana"
    file.write_text(" " * (fetching.DOCUMENT_BYTES_MAX + 1))
    clock.passed_s = FRESH_S + 10
    assert await made.verify(token)
    assert not idp.asked


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_certificates_are_checked(tmp_path: Path, clock: Clock, host: str) -> None:
    file, context = authority(tmp_path, host)
    (tmp_path / "other").mkdir()
    other, _ = authority(tmp_path / "other", host)
    with provider(context, host) as secure:
        for untrusted in ("", str(other)):
            with pytest.raises(Unavailable):
                await verifier(secure, clock, jwt_ca_file=untrusted).verify(secure.token())
        assert not secure.asked
        made = verifier(secure, clock, jwt_ca_file=str(file))
        assert (await made.verify(secure.token())).principal == "User:ana"


async def test_a_certificate_of_another_host_is_refused(tmp_path: Path, clock: Clock) -> None:
    file, context = authority(tmp_path, "issuer.example.org")
    with provider(context, "localhost") as secure:
        with pytest.raises(Unavailable):
            await verifier(secure, clock, jwt_ca_file=str(file)).verify(secure.token())
        assert not secure.asked


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"jwt_issuer": "http://issuer.example.org"}, "must be https"),
        ({"jwt_issuer": "issuer.example.org"}, "JWT_ISSUER"),
        ({"jwt_issuer": "https://a:b@issuer.example.org"}, "neither user"),
        ({"jwt_issuer": "https://issuer.example.org:x"}, "no URL"),
        ({"jwt_jwks": "http://issuer.example.org/keys"}, "RIACHO_JWT_JWKS"),
        ({"jwt_audience": " , "}, "RIACHO_JWT_AUDIENCE"),
        ({"jwt_algorithms": "RS256,HS256"}, "HS256 cannot"),
        ({"jwt_algorithms": "none"}, "none cannot"),
        ({"jwt_algorithms": ""}, "nothing cannot"),
        ({"jwt_principal_mapping_rules": "RULE:("}, "MAPPING_RULES"),
    ],
)
async def test_settings_that_make_no_sense_are_refused_at_the_start(
    idp: Provider, clock: Clock, changed: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        verifier(idp, clock, **changed)


def test_without_an_issuer_there_is_nothing_to_verify() -> None:
    assert verifier_of(Settings(), real_world()) is None
