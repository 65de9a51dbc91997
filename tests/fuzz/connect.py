"""Decoders of Connect: its items, configurations, and what its converters read."""

from typing import Any

from hypothesis import strategies as st

from service.connect.config.keys import Key, KeyType
from service.connect.config.values import parse
from service.connect.converters.choice import converter_of
from service.connect.data.errors import DataFault
from service.connect.data.parsed_text import parsed_text
from service.connect.dead_letters import sent
from service.connect.tasks import items
from tests.fuzz.decoder import STRUCTS, Decoder, framed
from tests.fuzz.received import NESTED

ITEMS = [
    framed(f"service.connect.tasks.items.{decode.__name__}", magic, kind, decode, encode)
    for decode, encode, magic, kind in (
        (items.decode_connector, items.encode_connector, b"RCC1", items.ConnectorItem),
        (items.decode_task, items.encode_task, b"RCT1", items.TaskItem),
        (items.decode_offset, items.encode_offset, b"RCP1", items.OffsetItem),
    )
]

SENT = framed(
    "service.connect.dead_letters.sent.decode_sent",
    b"RRD1",
    sent.SentLetters,
    sent.decode_sent,
    sent.encode_sent,
)

PLAIN = converter_of("JsonConverter", {"schemas.enable": "false"}, is_key=False, key="value")
WITH_SCHEMAS = converter_of("JsonConverter", {}, is_key=False, key="value")
NUMBER = converter_of("IntegerConverter", {}, is_key=False, key="value")

ENVELOPES = [
    b'{"schema": {"type": "int32", "optional": true, "default": 3}, "payload": 5}',
    b'{"schema": {"type": "struct", "name": "s", "fields": [{"field": "a", "type": "string"}]},'
    b' "payload": {"a": "b"}}',
    b'{"schema": {"type": "map", "keys": {"type": "int8"}, "values": {"type": "array", "items":'
    b' {"type": "bytes"}}}, "payload": [[1, ["YQ=="]]]}',
    b'{"schema": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,'
    b' "parameters": {"scale": "2"}}, "payload": "AQ=="}',
    b'{"schema": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},'
    b' "payload": 1700000000000}',
]


def _parsed(data: bytes) -> list[Any]:
    found = []
    for kind in KeyType:
        try:
            found.append(parse(Key(name="k", type=kind), data.decode(errors="replace")))
        except ValueError as error:
            found.append(str(error))
    return found


ALL = [
    *ITEMS,
    SENT,
    Decoder(
        covers=("service.connect.config.values.parse",),
        decode=_parsed,
        valid=st.sampled_from([b"true", b"17", b"1.5", b"a, b,c"]),
        factor=1500,
        why="a list of texts of one byte each, and the text in each of the messages",
    ),
    Decoder(
        covers=("service.connect.data.parsed_text.parsed_text",),
        decode=lambda data: parsed_text(data.decode(errors="replace")),
        valid=st.sampled_from([b"1", b"[1, 2.5, null]", b'{"a": "b"}', b"2026-01-02", b"true"]),
        hard=NESTED,
        errors=(RecursionError,),
        factor=1000,
        why="a byte may be an item of a list, with a schema",
    ),
    Decoder(
        covers=("service.connect.converters.json.converter.JsonConverter.to_data",),
        decode=lambda data: PLAIN.to_data("t", data),
        valid=st.sampled_from([b"1", b'{"a": [1, 2.5, null]}', b'"text"']),
        hard=NESTED,
        errors=(DataFault,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.connect.converters.json.converter.JsonConverter._reader",),
        decode=lambda data: WITH_SCHEMAS.to_data("t", data),
        valid=st.sampled_from(ENVELOPES),
        hard=NESTED,
        errors=(DataFault,),
        factor=1000,
        why="a byte may be an item, and schemas have what reads them",
    ),
    Decoder(
        covers=("service.connect.converters.plain.NumberConverter.to_data",),
        decode=lambda data: NUMBER.to_data("t", data),
        valid=st.binary(min_size=4, max_size=4),
        errors=(DataFault,),
        factor=64,
        why="one number",
    ),
]
