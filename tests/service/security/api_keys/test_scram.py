"""A verifier recognises one password, and is understood by clients that others have written."""

import base64
import os
from collections.abc import Callable

import pytest
import scramp

from service.security.api_keys.credentials import ApiKeys, NewKey
from service.security.api_keys.scram import (
    ITERATIONS_MIN,
    ScramMechanism,
    ScramVerifier,
    decoy,
    make_verifier,
    make_verifiers,
    of_salted,
)
from service.security.api_keys.tokens import parse_api_key
from service.security.api_keys.users import Users, decode, encode
from service.world.clock import real_world
from storage.errors import Corrupt, InvalidRequest, UnknownCredential
from storage.stores.memory import MemoryMetadata
from tests.storage.helpers.faults import FaultyMetadata

SALT = b"0123456789abcdef"

each_mechanism = pytest.mark.parametrize("mechanism", ScramMechanism)


def handshake(verifier: ScramVerifier, name: str, password: str) -> bool:
    """Return whether a client of another project and our verifier believe each other."""
    client = scramp.ScramClient([verifier.mechanism.value], name, password)
    first = client.get_client_first()
    bare = first.removeprefix("n,,")
    nonce = bare.partition(",r=")[2] + base64.b64encode(os.urandom(12)).decode().rstrip("=")
    salt = base64.b64encode(verifier.salt).decode()
    server_first = f"r={nonce},s={salt},i={verifier.iterations}"
    client.set_server_first(server_first)
    final = client.get_client_final()
    without_proof, _, proof = final.rpartition(",p=")
    auth_message = f"{bare},{server_first},{without_proof}".encode()
    if not verifier.has_proof(base64.b64decode(proof), auth_message):
        return False
    client.set_server_final(f"v={base64.b64encode(verifier.signature(auth_message)).decode()}")
    return True


@each_mechanism
def test_a_client_of_another_project_logs_in(mechanism: ScramMechanism) -> None:
    verifier = make_verifier(mechanism, "pencil, says who?", SALT, 5000)

    assert handshake(verifier, "ana", "pencil, says who?")
    assert not handshake(verifier, "ana", "pencil")
    assert not handshake(decoy(mechanism, "ana", b"seed"), "ana", "")


def test_the_numbers_are_those_of_the_standard() -> None:
    """RFC 7677, section 3."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = make_verifier(ScramMechanism.SHA_256, "pencil", salt, 4096)
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )

    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert verifier.has_proof(proof, auth_message)
    assert not verifier.has_proof(proof[:-1], auth_message)
    assert not verifier.has_proof(proof, auth_message + b"x")
    signature = base64.b64encode(verifier.signature(auth_message))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@each_mechanism
def test_a_verifier_is_the_same_as_another_project_makes(mechanism: ScramMechanism) -> None:
    other = scramp.ScramMechanism(mechanism.value)
    _, stored_key, server_key, _ = other.make_auth_info("pencil", 4096, SALT)
    verifier = make_verifier(mechanism, "pencil", SALT, 4096)

    assert (verifier.stored_key, verifier.server_key) == (stored_key, server_key)
    assert verifier.has_password("pencil")
    assert not verifier.has_password("Pencil")


def test_what_makes_no_sense_is_refused() -> None:
    sha_256 = ScramMechanism.SHA_256
    wrong: list[Callable[[], object]] = [
        lambda: make_verifier(sha_256, "", SALT),
        lambda: make_verifier(sha_256, "x" * 1025, SALT),
        lambda: make_verifier(sha_256, "pencil", b""),
        lambda: make_verifier(sha_256, "pencil", SALT, 4095),
        lambda: make_verifier(sha_256, "pencil", SALT, 16_385),
        lambda: of_salted(sha_256, b"short", SALT, 4096),
    ]
    for each in wrong:
        with pytest.raises(InvalidRequest):
            each()


def test_a_decoy_is_always_the_same_and_differs_by_name() -> None:
    for mechanism in ScramMechanism:
        one, again = decoy(mechanism, "ana", b"seed"), decoy(mechanism, "ana", b"seed")
        assert one == again
        assert one.salt != decoy(mechanism, "bia", b"seed").salt
        made = make_verifiers("pencil", os.urandom)
        assert {len(v.salt) for v in made} == {len(one.salt)}
        assert one.iterations == ITERATIONS_MIN


@pytest.fixture
def table() -> FaultyMetadata:
    return FaultyMetadata(MemoryMetadata(real_world().new_version))


@pytest.fixture
def users(table: FaultyMetadata) -> Users:
    return Users(table, real_world())


@pytest.mark.anyio
async def test_users_are_set_listed_and_deleted(users: Users) -> None:
    await users.set_password("bia", "second")
    made = await users.set_password("ana", "first", 5000)

    assert [user.name for user in await users.all()] == ["ana", "bia"]
    assert await users.find("ana") == made == decode(encode(made))
    for mechanism in ScramMechanism:
        verifier = made.verifier(mechanism)
        assert verifier is not None
        assert (verifier.has_password("first"), verifier.iterations) == (True, 5000)
    await users.set("ana", [make_verifier(ScramMechanism.SHA_256, "other", SALT)])
    changed = await users.find("ana")
    assert changed is not None
    assert [v.has_password("other") for v in changed.verifiers] == [True, False]

    await users.delete("ana", ScramMechanism.SHA_512)
    await users.delete("bia")
    assert [(user.name, len(user.verifiers)) for user in await users.all()] == [("ana", 1)]
    await users.delete("ana", ScramMechanism.SHA_256)
    assert await users.all() == []
    for gone in (("ana", None), ("bia", ScramMechanism.SHA_256), ("a/b", None)):
        with pytest.raises(UnknownCredential):
            await users.delete(*gone)


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["", "a b", "a/b", "a;b", "a,b", "x" * 250, "a\n", "\x7f"])
async def test_a_name_is_one_that_every_door_can_say(users: Users, name: str) -> None:
    with pytest.raises(InvalidRequest, match="user"):
        await users.set_password(name, "pencil")
    assert await users.find(name) is None


@pytest.mark.anyio
async def test_a_lost_reply_changes_nothing(users: Users, table: FaultyMetadata) -> None:
    table.faults = ["reply lost"]
    await users.set_password("ana", "pencil")
    assert len(await users.all()) == 1
    table.faults = ["reply lost"]
    await users.delete("ana")
    assert await users.all() == []


@pytest.mark.anyio
async def test_a_user_that_is_damaged_is_noticed(users: Users, table: FaultyMetadata) -> None:
    made = await users.set_password("ana", "pencil")
    with pytest.raises(Corrupt):
        decode(encode(made)[:-1] + b"\0")


@pytest.mark.anyio
async def test_a_key_is_a_name_and_a_password_if_it_was_asked_to_be(table: FaultyMetadata) -> None:
    now_ms = 1_000_000
    world = real_world()
    api_keys = ApiKeys(table, world)
    plain, _ = await api_keys.create(NewKey(principal="User:ana"))
    assert plain.scram == ()
    key, text = await api_keys.create(NewKey(principal="User:ana", scram=True))
    parsed = parse_api_key(text)
    assert parsed is not None
    [verifier] = key.verifiers(ScramMechanism.SHA_256, now_ms)
    assert handshake(verifier, key.key_id, parsed.secret)

    rotated, new_text = await api_keys.rotate(key.key_id, overlap_ms=60_000)
    new = parse_api_key(new_text)
    assert new is not None
    now_ms = world.now_ms()
    newest, old = rotated.verifiers(ScramMechanism.SHA_512, now_ms)
    assert handshake(newest, key.key_id, new.secret)
    assert handshake(old, key.key_id, parsed.secret)
    assert rotated.verifiers(ScramMechanism.SHA_512, now_ms + 120_000) == [newest]
    plain, _ = await api_keys.rotate(plain.key_id, overlap_ms=60_000)
    assert plain.verifiers(ScramMechanism.SHA_512, now_ms) == []
