"""Converters of headers: Kafka's `SimpleHeaderConverter`, and any converter of values."""

from service.connect.converters.api import Converter
from service.connect.data.parsed_text import parsed_text
from service.connect.data.records import Header
from service.connect.data.schema import BYTES
from service.connect.data.text import text_of


class SimpleHeaderConverter:
    """Headers as text; what is read is of the type that it looks like."""

    def to_header(self, topic: str, name: str, data: bytes | None) -> Header:
        del topic
        if data is None:
            return Header(name, None)
        text = data.decode("utf-8", "replace")
        try:
            schema, value = parsed_text(text)
        except RecursionError:
            return Header(name, data, BYTES)
        return Header(name, value, schema)

    def to_bytes(self, topic: str, header: Header) -> bytes | None:
        del topic
        if header.value is None:
            return None
        return text_of(header.schema, header.value).encode("utf-8", "replace")


class ValueHeaderConverter:
    """Headers as a converter of values stores them."""

    def __init__(self, converter: Converter) -> None:
        self._converter = converter

    def to_header(self, topic: str, name: str, data: bytes | None) -> Header:
        schema, value = self._converter.to_data(topic, data)
        return Header(name, value, schema)

    def to_bytes(self, topic: str, header: Header) -> bytes | None:
        return self._converter.to_bytes(topic, header.schema, header.value)
