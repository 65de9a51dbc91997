"""What a codec of any type of schema does: JSON to the bytes after the id, and back.

A *body* is what follows the id of a schema in a record: of Avro and JSON the data, of Protobuf the
indexes of the message and then the data. None is no value, such as that of a tombstone: it is
encoded to None and decoded to None, and always fits.

What a value looks like as JSON:

    Avro      Avro's own JSON encoding, as Confluent's REST proxy gives it: a union is null or
              {"type": value}, bytes and fixed are strings of the characters 0 to 255, logical
              types look like what is below them, NaN and infinities are strings. Taken besides:
              union values without their type, missing fields that have a default, numbers for
              decimals, and ISO 8601 for dates and times.
    JSON      itself
    Protobuf  Protobuf's JSON mapping, with fields that have their default value; names of fields
              are taken as lowerCamelCase and as in the .proto file
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from storage.schemas.refused import RefusedValue

ROOM_BYTES: Final = 24 * 1024 * 1024
"""What the values of one call may take in memory, about, besides `ROOM_RATIO`."""

ROOM_RATIO: Final = 32
"""Bytes of memory that each encoded byte may become."""

TOO_LARGE: Final = "it becomes too large when it is decoded"
TOO_DEEP: Final = "it is nested too deep"


@dataclass(frozen=True, slots=True)
class Encoded:
    bodies: list[bytes | None]
    """One for each value; None for those that were refused."""
    refused: list[RefusedValue]


@dataclass(frozen=True, slots=True)
class Decoded:
    values: list[Any]
    """One for each body, as `msgspec.json` writes it; None for those that were refused."""
    refused: list[RefusedValue]


class Codec(Protocol):
    """Data of one schema; safe for threads."""

    def encode_many(self, values: Sequence[Any], room_bytes: int = ROOM_BYTES) -> Encoded:
        """Return the bodies of JSON values, together at most about `room_bytes`.

        Values whose bodies have no room are refused, too.
        """

    def decode_many(self, bodies: Sequence[bytes | None]) -> Decoded:
        """Return the values of bodies; one that is cut off, or followed by more, is refused."""

    def validate_many(self, bodies: Sequence[bytes | None]) -> list[RefusedValue]:
        """Return which bodies do not fit, and why."""


def room_for(bodies: Sequence[bytes | None]) -> int:
    """Return how many bytes of memory the values of these bodies may take."""
    return ROOM_BYTES + ROOM_RATIO * sum(len(body) for body in bodies if body is not None)
