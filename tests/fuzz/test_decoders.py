"""Every decoder returns a value or its typed error for any bytes, in bounded memory."""

from typing import Any

import pytest
from hypothesis import given

from tests.fuzz.cases import cases
from tests.fuzz.decoder import Decoder
from tests.fuzz.decoders import ALL
from tests.fuzz.memory import SPARE_BYTES, taken_bytes
from tests.fuzz.mutations import hostile

each = pytest.mark.parametrize("decoder", ALL, ids=lambda decoder: decoder.name)


def outcome(decoder: Decoder, data: bytes) -> Any:
    """Return the value, or the type of the error if that is allowed."""
    try:
        return decoder.decode(data)
    except decoder.errors as error:
        return type(error)


def check_memory(decoder: Decoder, data: bytes) -> None:
    bound = SPARE_BYTES + decoder.limit_bytes + decoder.factor * len(data)
    taken = taken_bytes(lambda: outcome(decoder, data))
    if taken > bound:
        # Memory that the first call allocates once does not count for this input.
        taken = taken_bytes(lambda: outcome(decoder, data))
    assert taken <= bound, f"{taken} bytes for an input of {len(data)}"


@each
def test_any_bytes_decode_to_a_value_or_the_typed_error_in_bounded_memory(decoder: Decoder) -> None:
    believes = bool(decoder.believes)
    plain = hostile(decoder.valid) | decoder.hard
    sealed = hostile(decoder.valid, decoder.envelope)

    @cases(40)
    @given(plain.map(lambda data: (data, True)) | sealed.map(lambda data: (data, not believes)))
    def holds(case: tuple[bytes, bool]) -> None:
        data, is_bounded = case
        if is_bounded:
            check_memory(decoder, data)
        found = outcome(decoder, data)
        if decoder.encode is not None and not isinstance(found, type):
            assert decoder.decode(decoder.encode(found)) == found, "it does not come back"

    holds()


@each
def test_valid_bytes_are_decoded_and_encoded_again(decoder: Decoder) -> None:
    @cases(10)
    @given(decoder.valid)
    def holds(data: bytes) -> None:
        check_memory(decoder, data)
        value = decoder.decode(data)
        if decoder.encode is not None:
            assert decoder.decode(decoder.encode(value)) == value

    holds()
