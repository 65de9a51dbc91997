"""No decoder is forgotten: each that the source tree has is tried, or it is said why not."""

from tests.fuzz import sources
from tests.fuzz.decoders import ALL, NOT_TRIED

# Some are tried several times, with what differs in parentheses.
TRIED = {name.partition(" (")[0] for decoder in ALL for name in decoder.covers}
FOUND = set(sources.decoders())


def test_every_decoder_is_tried_or_explained() -> None:
    assert FOUND - TRIED - NOT_TRIED.keys() == set()


def test_what_is_explained_is_there_and_not_tried() -> None:
    assert NOT_TRIED.keys() <= FOUND
    assert not NOT_TRIED.keys() & TRIED


def test_what_is_tried_is_there() -> None:
    assert {name for name in TRIED if not sources.exists(name)} == set()


def test_every_name_is_tried_under_one_name_only() -> None:
    assert len({decoder.name for decoder in ALL}) == len(ALL)


def test_a_decoder_that_nobody_registered_would_be_noticed() -> None:
    source = """
class Codec:
    def decode_frame(self, data): ...
def loaded(data):
    return msgspec.msgpack.decode(data)
def harmless(data):
    return data
"""

    assert [*sources.decoders_in(source, "m")] == ["m.Codec.decode_frame", "m.loaded"]
