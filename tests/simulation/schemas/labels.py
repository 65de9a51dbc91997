"""Labels of schemas (`tests/checker/schema_history.py`) as Avro, and back."""

import json
from typing import Any


def schema_of(label: str) -> dict[str, Any]:
    """Return the body that registers the schema with this label."""
    kind, _, base = label.partition(">")
    described = {
        "type": "record",
        # What refers to another schema must not have its name.
        "name": "R" if base else "B",
        "fields": [{"name": "a", "type": kind.partition(".")[0]}],
        "label": label,
    }
    body: dict[str, Any] = {"schema": json.dumps(described)}
    if base:
        subject, _, version = base.rpartition(":")
        body["references"] = [{"name": "B", "subject": subject, "version": int(version)}]
    return body


def label_of(schema: str) -> str:
    label: str = json.loads(schema)["label"]
    return label
