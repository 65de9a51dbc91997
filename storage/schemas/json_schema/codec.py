"""Data of a JSON Schema: JSON, which is checked."""

from collections.abc import Sequence
from typing import Any, Self

import msgspec

from storage.schemas.codec import ROOM_BYTES, TOO_DEEP, Decoded, Encoded
from storage.schemas.json_schema import limits
from storage.schemas.json_schema.documents import Documents
from storage.schemas.json_schema.reading import read
from storage.schemas.json_schema.values import JsonValues
from storage.schemas.refused import RefusedValue
from storage.schemas.source import InvalidSchema, SchemaSource


class JsonCodec:
    """A `Codec` of JSON Schema."""

    def __init__(self, documents: Documents, checks: int) -> None:
        """Make the codec of a schema whose limits were checked: `checks` look at one value."""
        self.documents = documents
        self._values = JsonValues(documents, checks)
        self._decode = msgspec.json.Decoder().decode
        self._encode = msgspec.json.Encoder().encode

    @classmethod
    def of(cls, source: SchemaSource) -> Self:
        value = read(source.text)
        if not isinstance(value, dict | bool):
            raise InvalidSchema("a JSON Schema is an object, `true` or `false`")
        documents = Documents(value, source.references)
        return cls(documents, limits.check(documents))

    def encode_many(self, values: Sequence[Any], room_bytes: int = ROOM_BYTES) -> Encoded:
        bodies: list[bytes | None] = []
        broken: dict[int, RefusedValue] = {}
        left = room_bytes
        for index, value in enumerate(values):
            body = None
            if value is not None:
                try:
                    body = self._encode(value)
                except RecursionError:
                    broken[index] = RefusedValue(index, "", TOO_DEEP)
                except (ValueError, TypeError, msgspec.MsgspecError) as error:
                    broken[index] = RefusedValue(index, "", f"it is not JSON: {error}")
                else:
                    left -= len(body)
                    if left < 0:
                        body = None
                        broken[index] = RefusedValue(index, "", "the values are too large together")
            bodies.append(body)
        for each in self._values.validate_many(bodies):
            bodies[each.index] = None
            broken[each.index] = each
        return Encoded(bodies, [broken[index] for index in sorted(broken)])

    def decode_many(self, bodies: Sequence[bytes | None]) -> Decoded:
        values: list[Any] = []
        refused = []
        for index, body in enumerate(bodies):
            value = None
            if body is not None:
                try:
                    value = self._decode(body)
                except RecursionError:
                    refused.append(RefusedValue(index, "", TOO_DEEP))
                except (msgspec.MsgspecError, ValueError) as error:
                    refused.append(RefusedValue(index, "", f"it is not JSON: {error}"))
            values.append(value)
        return Decoded(values, refused)

    def validate_many(self, bodies: Sequence[bytes | None]) -> list[RefusedValue]:
        return self._values.validate_many(bodies)
