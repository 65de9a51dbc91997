"""The text of a key: what it looks like, and that a mistyped one is found without a read."""

from hypothesis import given
from hypothesis import strategies as st

from service.security.api_keys import tokens
from service.security.api_keys.tokens import ALPHABET, ID_BYTES, SECRET_BYTES
from tests.examples import some

keys = st.builds(
    lambda key_id, secret: tokens.key_text(tokens.key_id(key_id), tokens.secret(secret)),
    st.binary(min_size=ID_BYTES, max_size=ID_BYTES),
    st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES),
)


@some
@given(keys)
def test_a_key_is_one_word_that_says_what_it_is(text: str) -> None:
    parsed = tokens.parse_api_key(text)
    assert parsed is not None
    assert tokens.is_key_id(parsed.key_id)
    assert tokens.key_text(*parsed) == text
    assert text.startswith("rk_")
    assert set(text) <= {*ALPHABET, "_"}
    assert len(text) == 70


@some
@given(keys, st.data())
def test_any_changed_character_is_found(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(
        st.sampled_from([*ALPHABET, "_", "-", " ", "é"]).filter(lambda c: c != text[place])
    )
    assert tokens.parse_api_key(text[:place] + other + text[place + 1 :]) is None


@some
@given(keys, st.data())
def test_swapped_missing_and_added_characters_are_found(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 2))
    swapped = text[:place] + text[place + 1] + text[place] + text[place + 2 :]
    if swapped != text:
        assert tokens.parse_api_key(swapped) is None
    assert tokens.parse_api_key(text[:place] + text[place + 1 :]) is None
    assert tokens.parse_api_key(text[:place] + "0" + text[place:]) is None
    assert tokens.parse_api_key(text + "\n") is None


@some
@given(st.text(max_size=100))
def test_other_texts_are_no_keys(text: str) -> None:
    assert tokens.parse_api_key(text) is None
    assert tokens.parse_api_key("rk_" + text) is None
