"""What can read what: every rule by its name, both ways, and an oracle that tries data."""

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from service.registry.formats.form import form_of
from service.registry.formats.json_schema.rules import MEANINGS
from storage.schemas.source import SchemaType
from tests.examples import some
from tests.service.registry.formats.json_schema.pairs_of_schemas import CHANGES, Change
from tests.service.registry.formats.json_schema.values import SCHEMAS, VALUES, changed

JSON = form_of(SchemaType.JSON)


def broken(old: Any, new: Any) -> set[str]:
    reader, writer = (JSON.parse(json.dumps(schema), []) for schema in (new, old))
    return {f"{found.kind} {found.path}" for found in reader.unreadable(writer)}


@pytest.mark.parametrize("change", CHANGES, ids=range(len(CHANGES)))
def test_a_change_breaks_the_rules_of_the_table(change: Change) -> None:
    assert broken(change.one, change.other) == change.there
    assert broken(change.other, change.one) == change.back


def test_the_table_has_every_rule() -> None:
    in_table = {rule.split()[0] for change in CHANGES for rule in (*change.there, *change.back)}
    assert in_table == set(MEANINGS)


def test_a_broken_rule_says_where_and_what_it_means() -> None:
    old, new = ({"properties": {"a/b": {"maxLength": length}}} for length in (5, 3))
    [found] = JSON.parse(json.dumps(new), []).unreadable(JSON.parse(json.dumps(old), []))

    assert (found.kind, found.path) == ("MAX_LENGTH_DECREASED", "#/properties/a/b/maxLength")
    assert found.message == (
        "the new schema allows less than the old one (at #/properties/a/b/maxLength)"
    )


def test_large_and_small_numbers_are_compared_exactly() -> None:
    def number(text: str) -> Any:
        return JSON.parse(f'{{"type": "number", "maximum": {text}}}', [])

    above = number("1000000000000000000000000000001")
    assert above.unreadable(number("1e30")) == []
    assert [found.kind for found in number("1e30").unreadable(above)] == ["MAXIMUM_DECREASED"]
    assert number("1.0").unreadable(number("1")) == []
    assert number("1e400").unreadable(number("1e399")) == []


@some
@given(SCHEMAS)
def test_every_schema_reads_its_own_data(schema: Any) -> None:
    assert broken(schema, schema) == set()


@some
@given(st.data(), SCHEMAS, st.lists(VALUES, min_size=40, max_size=60))
def test_what_is_declared_compatible_reads_all_data_that_we_can_find(
    data: st.DataObject, old: Any, values: list[Any]
) -> None:
    new = data.draw(SCHEMAS | changed(old))
    compatible = not broken(old, new)
    event(f"compatible: {compatible}")
    assume(compatible)
    writes, reads = (jsonschema_rs.Draft7Validator(schema) for schema in (old, new))

    for value in values:
        assert reads.is_valid(value) or not writes.is_valid(value), value
