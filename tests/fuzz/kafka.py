"""Decoders of Kafka's protocol: frames of clients, and of the brokers that a client of ours met."""

from random import Random

from hypothesis import strategies as st

from service.kafka.protocol import codec
from service.kafka.protocol.apis import APIS
from service.kafka.protocol.codec import MalformedFrame
from tests.fuzz.decoder import Decoder
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
]
