"""The normal form of `.proto` text is frozen: ids of stored schemas depend on every character."""

from pathlib import Path

import pytest

from service.registry.formats.protobuf.form import FORM
from tests.service.registry.formats.protobuf.meaning import meaning

GOLDEN = Path(__file__).parent / "golden"
NAMES = ("edition_2024", "editions", "entries", "proto2", "proto3")

each = pytest.mark.parametrize("name", NAMES)


def text(name: str) -> str:
    return (GOLDEN / f"{name}.proto").read_text()


@each
def test_the_canonical_text_never_changes(name: str) -> None:
    assert FORM.parse(text(name), []).canonical == text(f"{name}.canonical")


@each
def test_the_normalized_text_never_changes(name: str) -> None:
    assert FORM.parse(text(name), []).normalized == text(f"{name}.normalized")


@each
def test_the_canonical_text_means_the_same_and_is_its_own_canonical_text(name: str) -> None:
    sent = FORM.parse(text(name), [])
    stored = FORM.parse(sent.canonical, [])
    assert stored.canonical == sent.canonical
    assert meaning(stored) == meaning(sent)


@each
def test_the_normalized_text_is_its_own_normalized_and_canonical_text(name: str) -> None:
    normalized = FORM.parse(text(name), []).normalized
    again = FORM.parse(normalized, [])
    assert (again.canonical, again.normalized) == (normalized, normalized)


@each
def test_a_descriptor_comes_back_from_what_is_stored(name: str) -> None:
    descriptor = FORM.parse(text(name), []).serialized()
    stored = FORM.parse(FORM.parse(descriptor, []).canonical, [])
    assert meaning(stored) == meaning(FORM.parse(descriptor, []))
    assert FORM.parse(stored.serialized(), []).canonical == stored.canonical
    assert FORM.parse(descriptor, []).normalized == FORM.parse(text(name), []).normalized


def test_every_golden_file_is_compared() -> None:
    kinds = ("", ".canonical", ".normalized")
    assert {f"{name}{kind}.proto" for name in NAMES for kind in kinds} == {
        file.name for file in GOLDEN.iterdir()
    }
