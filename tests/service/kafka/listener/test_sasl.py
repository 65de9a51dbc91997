"""Who is at the other end: mechanisms, what is refused, and what is noticed later."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from service.kafka.door import KafkaDoor
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.handshake import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from service.kafka.protocol.messages.metadata import MetadataRequest
from service.log.gateway import Gateway
from service.security.api_keys.credentials import ApiKey, ApiKeys, NewKey
from service.security.api_keys.scram import ScramMechanism
from service.security.api_keys.tokens import parse_api_key
from service.security.api_keys.users import Users
from service.world.clock import World, real_world
from tests.service.kafka.listener.served import Client, door

pytestmark = pytest.mark.anyio

SCRAMS = list(ScramMechanism)


async def new_key(gateway: Gateway, **fields: Any) -> tuple[ApiKey, str, str]:
    """Return a key, its secret and its text."""
    made = NewKey(**{"principal": "User:ana", "is_super": True} | fields)
    key, text = await ApiKeys(gateway.metadata, gateway.world).create(made)
    parsed = parse_api_key(text)
    assert parsed is not None
    return key, parsed.secret, text


async def shake(client: Client, mechanism: str) -> Any:
    return await client.ask(1, SaslHandshakeRequest(mechanism=mechanism))


async def tell(client: Client, token: bytes) -> Any:
    return await client.ask(2, SaslAuthenticateRequest(auth_bytes=token))


async def plain(client: Client, name: str, password: str) -> Any:
    assert (await shake(client, "PLAIN")).error_code == 0
    return await tell(client, f"\0{name}\0{password}".encode())


async def scram(client: Client, mechanism: ScramMechanism, name: str, password: str) -> Any:
    """Log in as a client does; return the last answer, once the gateway has proved itself."""
    assert (await shake(client, mechanism)).error_code == 0
    bare = f"n={name},r=fyko+d2lbbFgONRv9qkxdawL"
    first = await tell(client, f"n,,{bare}".encode())
    if first.error_code:
        return first
    said = bytes(first.auth_bytes).decode()
    parts = dict(part.split("=", 1) for part in said.split(","))
    salted = hashlib.pbkdf2_hmac(
        mechanism.digest, password.encode(), base64.b64decode(parts["s"]), int(parts["i"])
    )
    unproven = f"c=biws,r={parts['r']}"
    message = f"{bare},{said},{unproven}".encode()
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored = hashlib.new(mechanism.digest, client_key).digest()
    signature = hmac.digest(stored, message, mechanism.digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    last = await tell(client, f"{unproven},p={base64.b64encode(proof).decode()}".encode())
    if not last.error_code:
        server_key = hmac.digest(salted, b"Server Key", mechanism.digest)
        expected = base64.b64encode(hmac.digest(server_key, message, mechanism.digest))
        assert bytes(last.auth_bytes) == b"v=" + expected
    return last


async def is_served(client: Client) -> bool:
    """Whether a request is answered; otherwise the connection was closed."""
    client.send(12, MetadataRequest(topics=[]))
    try:
        await client.frame()
    except (EOFError, ConnectionError):
        return False
    return True


async def to(opened: KafkaDoor) -> Client:
    return await Client.to(opened.address.port)


async def test_nothing_but_the_handshake_before_it() -> None:
    async with door() as (opened, _, _):
        assert opened.address.protocol == "SASL_PLAINTEXT"
        assert not await is_served(await to(opened))
        client = await to(opened)
        versions = await client.ask(
            3, ApiVersionsRequest(client_software_name="a", client_software_version="1")
        )
        assert versions.error_code == 0
        assert (await tell(client, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()
        client = await to(opened)
        shaken = await shake(client, "GSSAPI")
        assert shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert shaken.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        client = await to(opened)
        raw = await client.ask(0, SaslHandshakeRequest(mechanism="PLAIN"))
        assert raw.error_code == ErrorCode.ILLEGAL_SASL_STATE
        client = await to(opened)
        client.writer.write((600_000).to_bytes(4, "big"))
        assert await client.is_closed(), "before authentication requests are small"


async def test_plain_with_a_key_and_with_a_user() -> None:
    async with door() as (opened, gateway, _):
        key, secret, text = await new_key(gateway)
        await Users(gateway.metadata, gateway.world).set_password("bob", "geheim")
        for name, password in ((key.key_id, secret), (key.key_id, text),
                               ("bob", "geheim")):  # fmt: skip
            client = await to(opened)
            done = await plain(client, name, password)
            assert (done.error_code, done.session_lifetime_ms) == (0, 0)
            assert await is_served(client)
        for name, password in ((key.key_id, "wrong"), ("bob", "wrong"), ("nobody", "x")):
            client = await to(opened)
            done = await plain(client, name, password)
            assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert done.error_message
            assert await client.is_closed()


@pytest.mark.parametrize("token", [b"", b"a\0b", b"\0a\0", b"x\0a\0b", b"\xff\0a\0b", b"\0a\0b\0"])
async def test_plain_that_cannot_be_read(token: bytes) -> None:
    async with door() as (opened, _, _):
        client = await to(opened)
        await shake(client, "PLAIN")
        done = await tell(client, token)
        assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("mechanism", SCRAMS)
async def test_scram_with_a_user_and_with_a_key(mechanism: ScramMechanism) -> None:
    async with door() as (opened, gateway, _):
        await Users(gateway.metadata, gateway.world).set_password("bob", "geheim")
        key, secret, _ = await new_key(gateway, scram=True)
        for name, password in (("bob", "geheim"), (key.key_id, secret)):
            client = await to(opened)
            assert (await scram(client, mechanism, name, password)).error_code == 0
            assert await is_served(client)
        for name in ("bob", "nobody"):
            client = await to(opened)
            done = await scram(client, mechanism, name, "wrong")
            assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "wrong" in done.error_message
            assert await client.is_closed()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"p=tls-unique,,n=bob,r=abc",
        b"n,a=eve,n=bob,r=abc",
        b"n,,n=bob,r=abc,tokenauth=true",
        b"n,,m=x,n=bob,r=abc",
        b"n,,n=bob",
        b"\xff",
    ],
)
async def test_scram_that_cannot_be(first: bytes) -> None:
    async with door() as (opened, _, _):
        client = await to(opened)
        await shake(client, "SCRAM-SHA-256")
        done = await tell(client, first)
        assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_names_that_do_not_exist_have_a_salt_that_stays() -> None:
    async with door() as (opened, _, _):
        said = []
        for _ in range(2):
            client = await to(opened)
            await shake(client, "SCRAM-SHA-256")
            first = await tell(client, b"n,,n=nobody,r=abc")
            said.append(bytes(first.auth_bytes).split(b",", 1)[1])
    assert said[0] == said[1]


async def test_who_fails_too_often_is_refused_even_with_the_right_secret() -> None:
    async with door(logins_failed_max=2) as (opened, gateway, _):
        await Users(gateway.metadata, gateway.world).set_password("bob", "geheim")
        for _ in range(2):
            await scram(await to(opened), ScramMechanism.SHA_256, "bob", "wrong")
        done = await scram(await to(opened), ScramMechanism.SHA_256, "bob", "geheim")
        assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "too many" in done.error_message


async def test_a_key_that_is_revoked_ends_open_connections() -> None:
    async with door() as (opened, gateway, security):
        key, secret, _ = await new_key(gateway)
        client = await to(opened)
        await plain(client, key.key_id, secret)
        assert await is_served(client)
        await ApiKeys(gateway.metadata, gateway.world).revoke(key.key_id)
        security.view.expire()
        assert not await is_served(client)


async def test_a_user_whose_password_changes_logs_in_again() -> None:
    async with door() as (opened, gateway, security):
        users = Users(gateway.metadata, gateway.world)
        await users.set_password("bob", "geheim")
        client = await to(opened)
        await scram(client, ScramMechanism.SHA_512, "bob", "geheim")
        await users.set_password("eve", "other")
        security.view.expire()
        assert await is_served(client), "a change of others changes nothing"
        await users.set_password("bob", "neu")
        security.view.expire()
        assert not await is_served(client)


async def test_a_session_ends_with_its_credential_unless_the_client_logs_in_again() -> None:
    real = real_world()
    ahead_ms = [0]
    world = World(
        now_ms=lambda: real.now_ms() + ahead_ms[0],
        monotonic_s=real.monotonic_s,
        sleep=real.sleep,
        random=real.random,
        random_bytes=real.random_bytes,
    )
    async with door(world=world) as (opened, gateway, _):
        key, secret, _ = await new_key(gateway, expires_ms=world.now_ms() + 60_000)
        later, other, _ = await new_key(gateway, expires_ms=world.now_ms() + 3_600_000)
        stays, ends, eve = await to(opened), await to(opened), await to(opened)
        for client in (stays, ends, eve):
            done = await plain(client, key.key_id, secret)
            assert 0 < done.session_lifetime_ms <= 60_000
        assert (await plain(stays, later.key_id, other)).session_lifetime_ms > 60_000
        _, third, text = await new_key(gateway, principal="User:eve")
        assert (await plain(eve, text.split("_")[1], third)).error_code, "not as somebody else"
        ahead_ms[0] = 61_000
        assert await is_served(stays)
        assert not await is_served(ends)
