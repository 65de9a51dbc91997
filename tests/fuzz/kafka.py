"""Decoders of the Kafka door: frames, logins, addresses, the item of the cluster."""

from collections.abc import Coroutine
from random import Random
from typing import Any

from hypothesis import strategies as st

from service.kafka.brokers import membership
from service.kafka.brokers.membership import ClusterItem
from service.kafka.handlers.admin.acl_codes import acl_of
from service.kafka.handlers.admin.answers import KafkaRefusal
from service.kafka.listener.address import parse_address
from service.kafka.listener.sasl import oauthbearer
from service.kafka.listener.sasl.passwords import PasswordClaim
from service.kafka.listener.sasl.scram import Scram
from service.kafka.protocol import codec
from service.kafka.protocol.apis import APIS
from service.kafka.protocol.codec import MalformedFrame
from service.kafka.protocol.messages.acls import AclCreation
from service.security.api_keys.scram import ScramMechanism, decoy
from storage.errors import InvalidConfig, Unauthenticated
from tests.fuzz.decoder import Decoder, framed
from tests.service.kafka.protocol.instances import instance

EVERY = [(key, version) for key, api in APIS.items() for version in api.request.VERSIONS]
STRUCTS = "an element of three bytes may be an object of a hundred, and an item of a list"
ONCE_BYTES = 4 * 1024 * 1024
"""Of the reader, which is made when its message is read for the first time."""


def _which(data: bytes) -> tuple[int, int]:
    """Return the API and version that the first two bytes choose."""
    return EVERY[int.from_bytes(data[:2]) % len(EVERY)]


def _request(data: bytes) -> object:
    return codec.decode_request(*_which(data), data[2:])


def _response(data: bytes) -> object:
    return codec.decode_response(*_which(data), data[2:])


@st.composite
def _requests(draw: st.DrawFn) -> bytes:
    chosen = draw(st.integers(0, len(EVERY) - 1))
    key, version = EVERY[chosen]
    request = instance(APIS[key].request, version, Random(draw(st.integers(0, 1000))))
    return chosen.to_bytes(2) + b"".join(codec.encode(request, version))


@st.composite
def _responses(draw: st.DrawFn) -> bytes:
    chosen = draw(st.integers(0, len(EVERY) - 1))
    key, version = EVERY[chosen]
    response = instance(APIS[key].response, version, Random(draw(st.integers(0, 1000))))
    return chosen.to_bytes(2) + b"".join(codec.encode_response(key, version, 1, response))[4:]


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    key, version = draw(st.sampled_from(EVERY))
    client_id = draw(st.none() | st.text(max_size=20))
    return b"".join(codec.encode_request(key, version, 1, client_id, APIS[key].request()))[4:]


class _Nobody:
    """Passwords of users who do not exist, and any proof is right."""

    async def claimant(self, name: str, mechanism: ScramMechanism, rules: Any) -> PasswordClaim:
        return PasswordClaim(decoy(mechanism, name, b"seed"), None)

    async def prove(self, *_: Any) -> Any:
        return "ana"

    async def again(self, *_: Any) -> Any:
        return "ana"


def _finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of what waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("it waits for something")


def _scram(data: bytes) -> Any:
    """Begin a login, and end it with `data`, in which "!" is the nonce of the gateway."""
    nobody: Any = _Nobody()
    rules: Any = None
    scram = Scram(ScramMechanism.SHA_256, nobody, rules, "peer", bytes)
    first = _finished(scram.step(b"n,,n=ana,r=abc"))
    nonce = first.reply.partition(b",")[0].removeprefix(b"r=")
    return _finished(scram.step(data.replace(b"!", nonce)))


def _scram_first(data: bytes) -> Any:
    nobody: Any = _Nobody()
    rules: Any = None
    return _finished(Scram(ScramMechanism.SHA_512, nobody, rules, "peer", bytes).step(data)).reply


def _acl(data: bytes) -> Any:
    """Return the ACL of a request with these numbers and names."""
    numbers = [each % 20 for each in data[:4].ljust(4, b"\0")]
    name, _, principal = data[4:].decode(errors="replace").partition(" ")
    return acl_of(
        AclCreation(
            resource_type=numbers[0],
            resource_pattern_type=numbers[1],
            operation=numbers[2],
            permission_type=numbers[3],
            resource_name=name,
            principal=principal,
            host="*",
        )
    )


PROOF = b"A" * 43 + b"="
LOGINS = [b"n,,n=ana,r=abc", b"n,a=ana,n=ana,r=abc", b"y,,n=a=2Cb,r=x,k=v"]
BEARERS = [b"n,,\x01auth=Bearer abc.def\x01\x01", b"n,a=ana,\x01auth=Bearer x\x01k=v\x01\x01"]

PROTOCOL = "service.kafka.protocol"

ALL = [
    Decoder(
        covers=(f"{PROTOCOL}.codec.decode_request", f"{PROTOCOL}.codec.decode"),
        decode=_request,
        valid=_requests(),
        errors=(MalformedFrame,),
        factor=150,
        limit_bytes=ONCE_BYTES,
        why=STRUCTS,
    ),
    Decoder(
        covers=(f"{PROTOCOL}.codec.decode_response",),
        decode=_response,
        valid=_responses(),
        errors=(MalformedFrame,),
        factor=150,
        limit_bytes=ONCE_BYTES,
        why=STRUCTS,
    ),
    Decoder(
        covers=(f"{PROTOCOL}.codec.read_header", f"{PROTOCOL}.codec._client_id"),
        decode=codec.read_header,
        valid=_frames(),
        errors=(MalformedFrame,),
        factor=10,
        why="the id of the client is copied",
    ),
    Decoder(
        covers=("service.kafka.listener.sasl.oauthbearer._parsed",),
        decode=oauthbearer._parsed,
        valid=st.sampled_from(BEARERS),
        errors=(Unauthenticated,),
        factor=40,
        why="a pair of two bytes is a tuple of three values",
    ),
    Decoder(
        covers=("service.kafka.listener.sasl.scram.Scram._final",),
        decode=_scram,
        valid=st.sampled_from([b"c=biws,r=!,p=" + PROOF, b"c=biws,r=!,x=1,p=AAAA"]),
        hard=st.sampled_from([b"c=biws,r=!,p=\xc3\xa9", b"c=biws,r=!,p=AAA", b"c=eSws,r=!,p=AAAA"]),
        errors=(Unauthenticated,),
        factor=40,
        why="the parts are copied",
    ),
    Decoder(
        covers=("service.kafka.listener.sasl.scram.Scram._final (the first message)",),
        decode=_scram_first,
        valid=st.sampled_from(LOGINS),
        errors=(Unauthenticated,),
        factor=40,
        why="the parts are copied, and the first message is kept",
    ),
    Decoder(
        covers=("service.kafka.handlers.admin.acl_codes.acl_of",),
        decode=_acl,
        valid=st.just(b"\x02\x03\x03\x03orders User:ana"),
        errors=(KafkaRefusal,),
        factor=40,
        why="names are copied",
    ),
    Decoder(
        covers=("service.kafka.listener.address.parse_address",),
        decode=lambda data: parse_address(data.decode(errors="replace"), "--kafka"),
        valid=st.sampled_from([b"127.0.0.1:9092", b"[::1]:9092", b":0"]),
        errors=(InvalidConfig,),
        factor=20,
        why="the text is copied",
    ),
    framed(
        "service.kafka.brokers.membership.decode",
        membership._MAGIC,
        ClusterItem,
        membership.decode,
        membership.encode,
    ),
]
