"""Columns of JSON values, and rows as text. No Spark is started."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Row

from riacho.cli.sql.options import Mode, check_bounded, origin_of, running_of, schemas_of
from riacho.cli.sql.rows import Format, cell, plain, write
from riacho.spark.sql.errors import explained
from riacho.spark.sql.schema import ddl, infer, kind_of, merged, objects
from riacho.spark.sql.sql import meta_prefix

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def columns(*documents: dict[str, Any]) -> str:
    return ddl(infer(documents))


def test_columns_are_those_of_all_values_in_the_order_they_were_met() -> None:
    found = columns(
        {"id": 1, "name": "a", "ok": True, "gone": None},
        {"id": 2.5, "at": {"x": 1, "y y": []}, "tags": ["a", None]},
    )

    assert found == (
        "`id` DOUBLE, `name` STRING, `ok` BOOLEAN, `gone` STRING,"
        " `at` STRUCT<`x`: BIGINT, `y y`: ARRAY<STRING>>, `tags` ARRAY<STRING>"
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], "BIGINT"),
        ([1, 2**63], "DOUBLE"),
        ([-(2**63)], "BIGINT"),
        ([1, "a"], "STRING"),
        ([True, 1], "STRING"),
        ([[1], [2.5], []], "ARRAY<DOUBLE>"),
        ([[1], {"a": 1}], "STRING"),
        ([{}], "STRING"),
        ([{}, {"a": 1}, {}], "STRUCT<`a`: BIGINT>"),
        ([{"a": 1}, {"b": 1}], "STRUCT<`a`: BIGINT, `b`: BIGINT>"),
    ],
)
def test_where_values_disagree_the_type_holds_them_all(values: list[Any], kind: str) -> None:
    assert columns(*({"x": value} for value in values)) == f"`x` {kind}"


def test_of_names_that_differ_by_case_only_the_first_counts() -> None:
    assert columns({"Id": 1, "id": "x"}, {"ID": True, "Id": 2}) == "`Id` BIGINT"


def test_names_are_quoted() -> None:
    assert columns({"a`b": 1, "c.d": 2}) == "`a``b` BIGINT, `c.d` BIGINT"


@given(JSON, JSON)
def test_what_was_seen_before_changes_nothing(one: Any, two: Any) -> None:
    both = merged(kind_of(one), kind_of(two))

    assert merged(both, kind_of(one)) == both
    assert merged(both, kind_of(two)) == both


def test_a_topic_is_json_if_half_of_its_values_are_objects() -> None:
    assert objects([b'{"a": 1}', None, b"x"]) == [{"a": 1}]
    assert objects([b'{"a": 1}', b"x", b"[1]"]) is None
    assert objects([b"\xff", b"1"]) is None
    assert objects([None]) is None
    assert objects([b"[" * 100_000]) is None


def test_other_columns_stay_apart_from_those_of_the_value() -> None:
    assert meta_prefix({"id": 1}) == "_"
    assert meta_prefix({"_KEY": 1}) == "__"
    assert meta_prefix({"_offset": 1, "__key": 1}) == "___"


# Rows


ROW = [
    1,
    None,
    True,
    Decimal("2.50"),
    Decimal(3),
    b"\xff",
    b"text",
    datetime(2026, 11, 16, 9, tzinfo=UTC),
    date(2026, 11, 16),
    [Row(x=1)],
    {"k": 1.5},
]
NAMES = [f"c{number}" for number in range(len(ROW))]


def test_values_are_what_json_has() -> None:
    assert [plain(value) for value in ROW] == [
        1, None, True, 2.5, 3, "/w==", "text", "2026-11-16 09:00:00+00:00", "2026-11-16",
        [{"x": 1}], {"k": 1.5},
    ]  # fmt: skip
    assert cell([1, "é"]) == '[1,"é"]'


def written(format_: Format, rows: list[list[Any]], names: list[str] = NAMES) -> str:
    out = io.StringIO()
    write(names, rows, format_, out)
    return out.getvalue()


def test_json_is_one_document_and_ndjson_one_for_each_row() -> None:
    assert json.loads(written(Format.JSON, [ROW, ROW]))[1]["c4"] == 3
    assert json.loads(written(Format.JSON, [])) == []
    lines = written(Format.NDJSON, [ROW, ROW]).splitlines()
    assert [json.loads(line)["c6"] for line in lines] == ["text", "text"]


def test_csv_has_a_header_and_quotes_where_it_must() -> None:
    assert written(Format.CSV, [['a "b", c', None, True]], ["x", "y", "z"]) == (
        'x,y,z\n"a ""b"", c",,true\n'
    )


# What was told, and what is said


def test_errors_are_one_line_with_a_hint() -> None:
    text = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)"
        "\n\n== SQL ==\nSELEC 1\n^^^\n"
    )
    assert explained(ParseException(text)) == ("Syntax error at or near 'SELEC' (line 1, column 1)")
    trace = "Job failed\nTraceback:\nstorage.errors.InvalidConfig: no such thing\n\tat org.apache"
    assert explained(AnalysisException(trace)) == "no such thing"


def test_schemas_are_of_a_topic_or_of_all() -> None:
    assert schemas_of(["a-b=id BIGINT", "x STRING, y STRUCT<a: INT>"]) == {
        "a-b": "id BIGINT",
        "": "x STRING, y STRUCT<a: INT>",
    }
    with pytest.raises(typer.BadParameter):
        schemas_of(["a="])


def test_times_may_be_ago() -> None:
    origin = origin_of("-2h", "--from")
    assert origin.kind == "time"
    assert origin_of("-5", "--from").kind == "last"
    with pytest.raises(typer.BadParameter):
        origin_of("yesterday", "--from")


def test_a_query_that_goes_on_has_a_place_that_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")

    def place(query: str, name: str | None = None) -> str:
        return running_of(query, "t", name, None, Mode.APPEND, False, "5m", "c=1 day").checkpoint

    assert place("SELECT 1", "mine") == "/state/riacho/queries/mine"
    assert place("SELECT  1\n") == place("SELECT 1") != place("SELECT 2")
    running = running_of("q", "t", "n", "/x", Mode.UPDATE, False, "5m", "1 day")
    assert (running.checkpoint, running.every, running.watermark) == (
        "/x", "5 minutes", ("", "1 day"),
    )  # fmt: skip
    for into, name, every in ((None, "n", None), ("t", "a/b", None), ("t", "n", "soon")):
        with pytest.raises(typer.BadParameter):
            running_of("q", into, name, None, Mode.APPEND, False, every, None)


def test_options_of_queries_that_go_on_are_refused_without_them() -> None:
    check_bounded(None, None, None, Mode.APPEND, False, None, None)
    with pytest.raises(typer.BadParameter, match="--continuous"):
        check_bounded("t", None, None, Mode.APPEND, False, None, None)
