"""Records as bodies of requests: each alone, joined by separators, or as a JSON array."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import DataFault
from service.connect.data.records import ConnectRecord

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class BodyForm:
    as_json: bool
    """Strings are quoted, too."""
    as_array: bool = False
    prefix: bytes = b""
    separator: bytes = b","
    suffix: bytes = b""

    @property
    def content_type(self) -> str:
        return JSON_TYPE if self.as_json or self.as_array else TEXT_TYPE


class Bodies:
    def __init__(self, form: BodyForm) -> None:
        self._form = form
        self._json = JsonConverter(with_schemas=False)

    def part_of(self, record: ConnectRecord) -> bytes:
        """Return what a body has of a record. Raises `DataFault`.

        As text, strings and bytes are sent as they are; what has parts is JSON in any case.
        """
        value = record.value
        if not (self._form.as_json or self._form.as_array):
            if isinstance(value, bytes):
                return value
            if isinstance(value, str):
                try:
                    return value.encode()
                except UnicodeEncodeError as error:
                    raise DataFault(f"the value cannot be sent as UTF-8: {error}") from error
        data = self._json.to_bytes(record.topic, record.value_schema, value)
        return b"null" if data is None else data

    def joined(self, parts: Sequence[bytes], is_batch: bool) -> bytes:
        """Return the body of these parts; without batches it is the one part itself."""
        form = self._form
        if not is_batch:
            [part] = parts
            return part
        if form.as_array:
            return b"[%b]" % b",".join(parts)
        return b"%b%b%b" % (form.prefix, form.separator.join(parts), form.suffix)
