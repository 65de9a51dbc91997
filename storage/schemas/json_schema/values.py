"""Values that are JSON against a JSON Schema, hundreds of thousands a second.

Whether a value fits takes bounded time: the schema was parsed within limits, which include those
of its patterns. Why it does not fit may take much longer, because each alternative of `anyOf` has
reasons of its own; so the reason is worked out only where value and schema are small together.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
from jsonschema_rs import ValidationError

from storage.schemas.codec import TOO_DEEP
from storage.schemas.json_schema.documents import Documents
from storage.schemas.json_schema.engine import compiled
from storage.schemas.refused import REASON_LENGTH_MAX, RefusedValue, pointer

EXPLAINED_MAX: Final = 50_000
"""Bytes of a value, times schemas that look at one for each level: beyond it, we give no reason."""

_NO_FIT: Final = "it does not fit its schema"


class JsonValues:
    """What checks values against one schema; make it once for a schema, and keep it."""

    def __init__(self, documents: Documents, checks: int) -> None:
        """Take a schema, and how many schemas look at one value of it, at most."""
        self._validator = compiled(documents)
        self._choices = checks if _has_alternatives(documents) else 1
        self._decode = msgspec.json.Decoder().decode

    def validate_many(self, values: Sequence[bytes | None]) -> list[RefusedValue]:
        """Return which values do not fit, and why; None is no value, and always fits."""
        decode, fits = self._decode, self._validator.is_valid
        refused = []
        for index, data in enumerate(values):
            if data is None:
                continue
            try:
                if fits(decode(data)):
                    continue
            except (msgspec.DecodeError, RecursionError, ValueError):
                # It is no JSON, or has a number that is no double: both are rare.
                pass
            found = self._examined(index, data)
            if found is not None:
                refused.append(found)
        return refused

    def _examined(self, index: int, data: bytes) -> RefusedValue | None:
        """Look closely at a value that does not seem to fit."""
        try:
            value = json.loads(data, parse_float=Decimal, parse_constant=_refuse_constant)
            if self._validator.is_valid(value):
                return None
        except RecursionError:
            return RefusedValue(index, "", TOO_DEEP)
        except json.JSONDecodeError as error:
            return RefusedValue(index, "", f"it is not JSON: {error.msg} at character {error.pos}")
        except ValueError as error:
            return RefusedValue(index, "", f"it is not JSON: {str(error)[:REASON_LENGTH_MAX]}")
        return self._explained(index, value, len(data))

    def _explained(self, index: int, value: Any, size_bytes: int) -> RefusedValue:
        if size_bytes * self._choices ** depth_of(value) > EXPLAINED_MAX:
            return RefusedValue(index, "", _NO_FIT)
        try:
            self._validator.validate(value)
        except ValidationError as error:
            path = pointer(map(str, error.instance_path))
            return RefusedValue(index, path, error.message[:REASON_LENGTH_MAX])
        except ValueError:
            # The reason would quote what is nested deeper than the library writes.
            return RefusedValue(index, "", _NO_FIT)
        raise AssertionError("a value that does not fit has a reason")


def depth_of(value: Any) -> int:
    """Return how deep a value is nested: 1 for one that is not."""
    level, depth = [value], 0
    while level:
        depth += 1
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        level = below
    return depth


def _has_alternatives(documents: Documents) -> bool:
    """Whether there is an `anyOf` or `oneOf`: data may fail in several ways at once."""
    return any(
        isinstance(place.schema, dict) and ("anyOf" in place.schema or "oneOf" in place.schema)
        for _, place in documents.places
    )


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")
