"""Avro: its normal text, what it refuses, and the same verdicts as Avro's own checker."""

import json
import time
import tracemalloc
from contextlib import suppress
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import assume, given
from hypothesis import strategies as st

from service.registry.formats.form import form_of
from storage.schemas.source import InvalidSchema, Named, SchemaType
from tests.examples import some

AVRO = form_of(SchemaType.AVRO)

FROZEN = [
    ('"string"', '"string"'),
    ("string", '"string"'),
    ('{"type": "string"}', '"string"'),
    ('{"logicalType":"date","type":"int"}', '{"type":"int","logicalType":"date"}'),
    ('[ "null", {"type":"array", "items":"long"} ]', '["null",{"type":"array","items":"long"}]'),
    (
        '{"namespace":"a.b","name":"R","type":"record","doc":"é","fields":[{"default":1,'
        '"type":"int","name":"x","order":"ignore","aliases":["y"]},{"name":"n","type":["null",'
        '"R"],"default":null},{"name":"e","type":{"type":"enum","name":"c.E","symbols":["A"],'
        '"default":"A"}},{"name":"f","type":{"name":"F","type":"fixed","size":2}},{"name":"g",'
        '"type":"a.b.F"}],"aliases":["Old","z.Q"],"owner":"me"}',
        '{"type":"record","name":"R","namespace":"a.b","doc":"é","fields":[{"name":"x","type":"int",'
        '"default":1,"order":"ignore","aliases":["y"]},{"name":"n","type":["null","R"],"default":null},'
        '{"name":"e","type":{"type":"enum","name":"E","namespace":"c","symbols":["A"],"default":"A"}},'
        '{"name":"f","type":{"type":"fixed","name":"F","size":2}},{"name":"g","type":"F"}],'
        '"owner":"me","aliases":["Old","z.Q"]}',
    ),
]


@pytest.mark.parametrize(("text", "canonical"), FROZEN)
def test_the_text_of_a_schema_is_frozen(text: str, canonical: str) -> None:
    """Ids depend on it: a change here would give known schemas new ids."""
    schema = AVRO.parse(text, [])

    assert schema.canonical == schema.serialized() == canonical
    assert AVRO.parse(canonical, []).canonical == canonical


def test_normalized_puts_the_properties_of_users_in_order() -> None:
    one = AVRO.parse('{"type":"int","b":1,"a":2}', [])
    other = AVRO.parse('{"a":2,"type":"int","b":1}', [])

    assert one.canonical != other.canonical
    assert one.normalized == other.normalized == '{"type":"int","a":2,"b":1}'


def test_a_reference_is_a_name_in_the_text() -> None:
    inner = '{"type":"record","name":"In","namespace":"n","fields":[]}'
    outer = (
        '{"type":"record","name":"n.Out","fields":['
        '{"name":"a","type":"In"},{"name":"b","type":"n.In"}]}'
    )
    schema = AVRO.parse(outer, [Named("n.In", inner)])

    assert '"type":"In"' in schema.canonical
    assert '"fields":[]' not in schema.canonical
    with pytest.raises(InvalidSchema, match=r"no type 'n\.In'"):
        AVRO.parse(outer, [])
    with pytest.raises(InvalidSchema, match=r"reference 'n\.In': an Avro schema is JSON"):
        AVRO.parse(outer, [Named("n.In", "{")])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("nothing", "JSON"),
        ('"nothing"', "no type 'nothing'"),
        ("1", "a name, an object or a list"),
        ('{"type":1}', "'type' must be"),
        ('{"type":"record","name":"R"}', "needs 'fields'"),
        ('{"type":"record","fields":[]}', "needs 'name'"),
        ('{"type":"record","name":"a-b","fields":[]}', "not a name"),
        ('{"type":"record","name":"int","fields":[]}', "primitive"),
        ('{"type":"record","name":"R","fields":[1]}', "a field is an object"),
        ('{"type":"record","name":"R","fields":[{"name":"1","type":"int"}]}', "name of a field"),
        ('{"type":"record","name":"R","namespace":1,"fields":[]}', "namespace"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "two fields 'a'",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
            "/fields/0: the default \"x\" of 'a'",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"R","default":{}}]}',
            "contain themselves",
        ),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","order":1}]}', "order"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "twice"),
        ('{"type":"enum","name":"E","symbols":["-"]}', "not a symbol"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "no symbol"),
        ('{"type":"enum","name":"E"}', "list of strings"),
        ('{"type":"fixed","name":"F","size":-1}', "size"),
        ('{"type":"array"}', "items"),
        ('["int","int"]', "twice"),
        ('[["int"]]', "union cannot be"),
        ('{"type":"int","type":"long"}', "given twice"),
        ('{"type":"int","x":1e999}', "larger than any double"),
        ('{"type":"int","x":NaN}', "NaN"),
        ('{"type":"int","x":"\\ud800"}', "surrogate"),
        ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "defined"),
        ('{"type":"array","items":' * 200 + '"int"' + "}" * 200, "levels deep"),
        ("[" * 100_000, "levels deep"),
    ],
)
def test_says_why_it_is_no_schema(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        AVRO.parse(text, [])


def _record(*fields: str, name: str = "R") -> str:
    return f'{{"type":"record","name":"{name}","fields":[{",".join(fields)}]}}'


A_INT = '{"name":"a","type":"int"}'
RULES = [
    (
        "READER_FIELD_MISSING_DEFAULT_VALUE",
        "/fields/1",
        _record(A_INT),
        _record(A_INT, '{"name":"b","type":"int"}'),
    ),
    ("NAME_MISMATCH", "/name", _record(name="Q"), _record()),
    ("TYPE_MISMATCH", "/fields/0/type", _record('{"name":"a","type":"string"}'), _record(A_INT)),
    (
        "TYPE_MISMATCH",
        "/items",
        '{"type":"array","items":"long"}',
        '{"type":"array","items":"int"}',
    ),
    ("MISSING_UNION_BRANCH", "/1", '["int","string"]', '["int","null"]'),
    ("MISSING_UNION_BRANCH", "/", '"boolean"', '["int","null"]'),
    (
        "MISSING_ENUM_SYMBOLS",
        "/symbols",
        '{"type":"enum","name":"E","symbols":["A","B"]}',
        '{"type":"enum","name":"E","symbols":["A"]}',
    ),
    (
        "FIXED_SIZE_MISMATCH",
        "/values/size",
        '{"type":"map","values":{"type":"fixed","name":"F","size":1}}',
        '{"type":"map","values":{"type":"fixed","name":"F","size":2}}',
    ),
]


@pytest.mark.parametrize(("kind", "path", "writer", "reader"), RULES, ids=[r[0] for r in RULES])
def test_names_the_rule_and_the_place(kind: str, path: str, writer: str, reader: str) -> None:
    [found] = AVRO.parse(reader, []).unreadable(AVRO.parse(writer, []))

    assert (found.kind, found.path) == (kind, path)


NAMES = st.sampled_from(["A", "B", "C"])
SIMPLE = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])


def compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(
        st.builds(
            lambda name, kind, optional: (
                {"name": name, "type": kind}
                | ({"default": None, "type": ["null", "int"]} if optional else {})
            ),
            NAMES.map(str.lower),
            inner,
            st.booleans(),
        ),
        max_size=3,
        unique_by=lambda each: each["name"],
    )
    return st.one_of(
        st.builds(lambda of: {"type": "array", "items": of}, inner),
        st.builds(lambda of: {"type": "map", "values": of}, inner),
        st.lists(SIMPLE, min_size=1, max_size=3, unique=True),
        st.builds(
            lambda of: of if isinstance(of, list) else ["null", of],
            inner.filter(lambda t: t != "null"),
        ),
        st.builds(lambda name, of: {"type": "record", "name": name, "fields": of}, NAMES, fields),
        st.builds(
            lambda name, of: {"type": "enum", "name": f"E{name}", "symbols": of},
            NAMES,
            st.lists(NAMES, min_size=1, max_size=3, unique=True),
        ),
        st.builds(
            lambda name, size: {"type": "fixed", "name": f"F{name}", "size": size},
            NAMES,
            st.integers(1, 2),
        ),
    )


@some
@given(st.recursive(SIMPLE, compound, max_leaves=6), st.recursive(SIMPLE, compound, max_leaves=6))
def test_the_verdict_is_that_of_avro(one: Any, other: Any) -> None:
    texts = json.dumps(one), json.dumps(other)
    try:
        reader, writer = (AVRO.parse(text, []) for text in texts)
    except InvalidSchema:
        assume(False)
    theirs = ReaderWriterCompatibilityChecker().get_compatibility(*map(avro.schema.parse, texts))

    compatible = theirs.compatibility is SchemaCompatibilityType.compatible
    assert (reader.unreadable(writer) == []) == compatible
    assert reader.unreadable(reader) == []


def _large() -> list[str]:
    fields = ",".join(f'{{"name":"a{n}","type":"int"}}' for n in range(30_000))
    same_name = ",".join(
        f'{{"type":"record","name":"n{n}.R","fields":[{{"name":"f{n}","type":"int"}}]}}'
        for n in range(13_000)
    )
    chain = ",".join(
        _record(f'{{"name":"f","type":"{f"R{n - 1}" if n else "int"}"}}', name=f"R{n}")
        for n in range(10_000)
    )
    return [
        _record(fields),
        f"[{same_name}]",
        f"[{chain}]",
        '{"type":"int","x":[' + "{}," * 340_000 + "{}]}",
    ]


@pytest.mark.parametrize("text", _large(), ids=["fields", "same name", "chain", "properties"])
def test_large_schemas_take_bounded_time_and_memory(text: str) -> None:
    """A second and 64 MiB on an idle machine; ten times the time here, where it may be busy."""
    assert len(text) <= 1024 * 1024 + 64
    began = time.process_time()
    schema = AVRO.parse(text, [])
    assert schema.canonical
    with suppress(InvalidSchema):  # Too large or too deep to be compared, which is an answer.
        assert schema.unreadable(AVRO.parse(text, [])) == []
    took_s = time.process_time() - began
    assert took_s < 10

    tracemalloc.start()
    AVRO.parse(text, [])
    assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    tracemalloc.stop()
