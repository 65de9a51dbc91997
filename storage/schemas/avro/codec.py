"""Data of an Avro schema."""

from collections.abc import Sequence
from typing import Any

from storage.schemas.avro.parsing import parse_avro
from storage.schemas.avro.reading import CUT_OFF, MemoryLeft, reader_of
from storage.schemas.avro.sizes import Sizes
from storage.schemas.avro.types import AvroNamed
from storage.schemas.avro.writing import LEVELS_MAX, Out, writer_of
from storage.schemas.codec import ROOM_BYTES, TOO_DEEP, Decoded, Encoded, room_for
from storage.schemas.refused import DoesNotFit, RefusedValue
from storage.schemas.source import SchemaSource


class AvroCodec:
    """A `Codec` of Avro.

    Decodes as JSON; with `natural`, as Python has the values: bytes, values of unions without
    their type, dates, datetimes, decimals and UUIDs. Encodes either.
    """

    def __init__(self, source: SchemaSource, *, natural: bool = False) -> None:
        known: dict[str, AvroNamed] = {}
        for each in source.references:
            known = parse_avro(each.text, known, is_checked=True)[1]
        self.tree, _ = parse_avro(source.text, known)
        sizes = Sizes()
        self._write = writer_of(self.tree)
        self._read = reader_of(self.tree, sizes, natural=natural)
        self._memory = sizes.memory(self.tree)

    def encode_many(self, values: Sequence[Any], room_bytes: int = ROOM_BYTES) -> Encoded:
        write = self._write
        bodies: list[bytes | None] = []
        refused: list[RefusedValue] = []
        left = room_bytes
        for index, value in enumerate(values):
            body = None
            if value is not None:
                out = Out()
                out.begin()
                try:
                    write(value, out)
                    left -= len(out)
                    if left < 0:
                        raise DoesNotFit("the values are too large together")
                    body = bytes(out)
                except DoesNotFit as error:
                    refused.append(error.at(index))
                except RecursionError:
                    refused.append(RefusedValue(index, "", TOO_DEEP))
            bodies.append(body)
        return Encoded(bodies, refused)

    def decode_many(self, bodies: Sequence[bytes | None]) -> Decoded:
        read, memory, room = self._read, self._memory, MemoryLeft(room_for(bodies))
        values: list[Any] = []
        refused: list[RefusedValue] = []
        for index, body in enumerate(bodies):
            value = None
            if body is not None:
                room.levels = LEVELS_MAX
                try:
                    room.take(memory)
                    found, end = read(body, 0, room)
                    if end != len(body):
                        raise DoesNotFit(f"{len(body) - end} bytes follow the value")
                    value = found
                except DoesNotFit as error:
                    refused.append(error.at(index))
                except IndexError:
                    refused.append(RefusedValue(index, "", CUT_OFF))
                except RecursionError:
                    refused.append(RefusedValue(index, "", TOO_DEEP))
            values.append(value)
        return Decoded(values, refused)

    def validate_many(self, bodies: Sequence[bytes | None]) -> list[RefusedValue]:
        return self.decode_many(bodies).refused
