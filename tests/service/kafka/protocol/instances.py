"""Messages with random values: everything that a version can hold, and nothing that it cannot."""

from collections.abc import Iterator
from random import Random
from typing import Any

from service.kafka.protocol.apis import APIS
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from service.kafka.protocol.notation import Field, Message, StructType, Wire

MESSAGES: list[type[Message]] = [
    *(message for api in APIS.values() for message in (api.request, api.response)),
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]

BITS = {Wire.INT8: 8, Wire.INT16: 16, Wire.INT32: 32, Wire.INT64: 64}
TEXTS = ("", "a", "orders", "größer", "\N{SNOWMAN}\0", "x" * 126, "x" * 127, "x" * 200)
MILLISECONDS_MAX = 10**12
"""Of times: kio makes dates of them."""


def versions() -> Iterator[tuple[type[Message], int]]:
    """Yield every message in every version."""
    for message in MESSAGES:
        for version in message.VERSIONS:
            yield message, version


def instance(kind: StructType, version: int, random: Random) -> Any:
    """Return a message or struct whose fields of other versions are as by default."""
    values = {
        each.name: _value(each, version, random)
        for each in kind.FIELDS
        if version in each.versions
        # A tagged field that is as by default is not sent.
        and (each.tag is None or random.random() < 0.7)
    }
    return kind(**values)


def _value(each: Field, version: int, random: Random) -> Any:
    if version in each.nullable and random.random() < 0.3:
        return None
    if each.is_array:
        many = (
            random.choice((0, 1, 2, 3, 9)) if isinstance(each.wire, Wire) else random.randrange(4)
        )
        return [_one(each, version, random) for _ in range(many)]
    return _one(each, version, random)


def _one(each: Field, version: int, random: Random) -> Any:
    if isinstance(each.wire, StructType):
        return instance(each.wire, version, random)
    if each.name.endswith("error_code"):
        return int(random.choice(list(ErrorCode)))
    match each.wire:
        case Wire.BOOL:
            return random.random() < 0.5
        case Wire.FLOAT64:
            return random.uniform(-1e9, 1e9)
        case Wire.UINT16:
            return random.randrange(65_536)
        case Wire.STRING:
            return random.choice(TEXTS)
        case Wire.UUID:
            return random.randbytes(16)
        case Wire.BYTES | Wire.RECORDS:
            return random.randbytes(random.choice((0, 1, 5, 126, 127, 300, 5000)))
    if each.name.endswith("_ms") or each.name.endswith("_timestamp"):
        return random.randrange(2**31 if each.wire is Wire.INT32 else MILLISECONDS_MAX)
    half = 2 ** (BITS[each.wire] - 1)
    return random.choice((0, 1, -1, half - 1, -half, random.randrange(-half, half)))
