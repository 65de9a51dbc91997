"""Every decoder of the source tree is tried, or has a reason why it is not."""

from tests.fuzz import sources
from tests.fuzz.decoders import ALL, NOT_TRIED

# Some are tried several times; parentheses hold the difference.
TRIED = {name.partition(" (")[0] for decoder in ALL for name in decoder.covers}
FOUND = set(sources.decoders())


def test_every_decoder_is_tried_or_has_a_reason() -> None:
    assert FOUND - TRIED - NOT_TRIED.keys() == set()


def test_functions_with_a_reason_exist_and_are_not_tried() -> None:
    assert NOT_TRIED.keys() <= FOUND
    assert not NOT_TRIED.keys() & TRIED


def test_functions_that_are_tried_exist() -> None:
    assert {name for name in TRIED if not sources.exists(name)} == set()


def test_names_of_entries_are_unique() -> None:
    assert len({decoder.name for decoder in ALL}) == len(ALL)


def test_decoders_are_found_by_name_and_by_their_calls() -> None:
    source = """
class Codec:
    def decode_frame(self, data): ...
def loaded(data):
    return msgspec.msgpack.decode(data)
def harmless(data):
    return data
"""

    assert [*sources.decoders_in(source, "m")] == ["m.Codec.decode_frame", "m.loaded"]
