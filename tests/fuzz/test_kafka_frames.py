"""A flood of damaged and random requests of every API in every version: all are read or refused.

`RIACHO_FUZZ_CASES=1000`, as `make proof PART=fuzz` has it, makes a million of them.
"""

import os
import resource
from contextlib import suppress
from random import Random

import pytest

from service.kafka.protocol.apis import APIS, Api
from service.kafka.protocol.codec import (
    MalformedFrame,
    decode_request,
    encode,
    encode_request,
    read_header,
)
from tests.fuzz.cases import ASKED
from tests.fuzz.kafka import EVERY
from tests.service.kafka.protocol.damage import damaged
from tests.service.kafka.protocol.instances import instance

FRAMES = 1000 * (ASKED or 15)
SEED = int.from_bytes(os.urandom(4)) if ASKED else 0
GROWTH_KIB_MAX = 64 * 1024
"""Of the process by all frames of an API: nothing is kept of a frame, and none is large."""


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
def test_a_flood_of_frames_is_read_or_refused_in_bounded_memory(key: Api) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for version in APIS[key].request.VERSIONS:
        _flood(key, version, FRAMES // len(EVERY))

    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < GROWTH_KIB_MAX, f"seed {SEED}"


def _flood(key: Api, version: int, count: int) -> None:
    random = Random(f"{SEED} {key} {version}")
    request = APIS[key].request
    valid = [b"".join(encode(instance(request, version, random), version)) for _ in range(3)]
    head = b"".join(encode_request(key, version, 1, "me", request()))[4:20]
    for number in range(count):
        is_random = number % 4 == 0
        body = random.randbytes(random.randrange(80)) if is_random else damaged(random, valid)
        with suppress(MalformedFrame):
            decode_request(key, version, body)
        with suppress(MalformedFrame):
            read_header(damaged(random, [head]))
