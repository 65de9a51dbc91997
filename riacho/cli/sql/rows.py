"""Rows of a result as a table, JSON, lines of JSON, or CSV."""

import csv
import json
import sys
from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import chain
from typing import Any, TextIO


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


def plain(value: Any) -> Any:
    """Return the value of a column for JSON; bytes as text, or as base64 if not UTF-8."""
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, date):
        return _time(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _time(value: date) -> str:
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds")
    return value.isoformat()


def cell(value: Any) -> str | int | float | None:
    """Return the value of a column as one word of a table or a CSV file."""
    value = plain(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    assert value is None or isinstance(value, int | float | str), value
    return value


def write(
    names: Sequence[str],
    rows: Iterable[Sequence[Any]],
    format_: Format,
    out: TextIO | None = None,
) -> None:
    """Print the rows as they arrive, on stdout by default; a table once all have arrived."""
    out = out or sys.stdout
    if format_ is Format.TABLE:
        from riacho.cli.output import print_table

        print_table(names, [[cell(value) for value in row] for row in rows])
    elif format_ is Format.CSV:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows(chain([names], ([cell(value) for value in row] for row in rows)))
    elif format_ is Format.NDJSON:
        out.writelines(_json(names, row) + "\n" for row in rows)
    else:
        separator = "[\n  "
        for row in rows:
            out.write(separator + _json(names, row))
            separator = ",\n  "
        out.write("[]\n" if separator.startswith("[") else "\n]\n")


def _json(names: Sequence[str], row: Sequence[Any]) -> str:
    document = {name: plain(value) for name, value in zip(names, row, strict=True)}
    return json.dumps(document, ensure_ascii=False)
