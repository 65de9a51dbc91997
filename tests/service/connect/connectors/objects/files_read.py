"""Reads back what the object sink has written, with the libraries that people read it with."""

import gzip
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

Found = Mapping[str, bytes]
"""Files by their names."""


def in_folder(root: Path) -> Found:
    """Return all files below a folder; leftovers of unfinished writes are files as well."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def rows(name: str, body: bytes) -> list[Any]:
    """Return the values in a file, as its name says what it is."""
    if name.endswith(".gz"):
        body, name = gzip.decompress(body), name.removesuffix(".gz")
    if name.endswith(".json"):
        return [json.loads(line) for line in body.splitlines()]
    if name.endswith(".avro"):
        return list(fastavro.reader(io.BytesIO(body)))
    if name.endswith(".parquet"):
        found: list[Any] = pq.read_table(io.BytesIO(body)).to_pylist()
        return found
    return body.splitlines()


def all_rows(found: Found) -> list[Any]:
    return [row for name, body in sorted(found.items()) for row in rows(name, body)]
