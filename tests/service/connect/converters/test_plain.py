"""Text, bytes, numbers, booleans, and which class names mean them."""

import pytest

from service.connect.converters.choice import CONVERTERS, converter_of, header_converter_of
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.records import Header
from service.connect.data.schema import BOOLEAN, INT32, STRING, ConnectSchema, Type, array, struct


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("StringConverter", "é", "é".encode()),
        ("ByteArrayConverter", b"\x00\xff", b"\x00\xff"),
        ("ShortConverter", -2, b"\xff\xfe"),
        ("IntegerConverter", 258, b"\x00\x00\x01\x02"),
        ("LongConverter", -1, b"\xff" * 8),
        ("FloatConverter", 1.5, b"\x3f\xc0\x00\x00"),
        ("DoubleConverter", 1.5, b"\x3f\xf8" + bytes(6)),
        ("BooleanConverter", True, b"\x01"),
    ],
)
def test_values_come_back_and_null_stays_null(name: str, value: object, stored: bytes) -> None:
    converter = converter_of(name, {}, is_key=False, key="value.converter")
    assert converter.to_bytes("t", None, value) == stored
    schema, found = converter.to_data("t", stored)
    assert found == value
    assert schema is not None
    assert schema.is_optional
    assert converter.to_bytes("t", schema, None) is None
    assert converter.to_data("t", None)[1] is None


@pytest.mark.parametrize(
    ("name", "schema", "value"),
    [
        ("IntegerConverter", None, 1 << 31),
        ("IntegerConverter", None, "1"),
        ("IntegerConverter", BOOLEAN, True),
        ("DoubleConverter", None, 1),
        ("BooleanConverter", STRING, "true"),
        ("BooleanConverter", None, 1),
        ("ByteArrayConverter", STRING, "a"),
        ("ByteArrayConverter", None, "a"),
        ("StringConverter", None, b"a"),
    ],
)
def test_values_of_other_types_are_refused(
    name: str, schema: ConnectSchema | None, value: object
) -> None:
    converter = converter_of(name, {}, is_key=False, key="value.converter")
    with pytest.raises(DataFault):
        converter.to_bytes("t", schema, value)


@pytest.mark.parametrize(
    ("name", "data"),
    [("IntegerConverter", b"123"), ("BooleanConverter", b"\x02"), ("BooleanConverter", b"")],
)
def test_bytes_of_another_form_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(DataFault, match="Failed to deserialize"):
        converter_of(name, {}, is_key=True, key="key.converter").to_data("t", data)


def test_structures_become_text_as_java_prints_them() -> None:
    schema = struct([("a", INT32), ("b", array(STRING)), ("c", STRING.optional())])
    converter = converter_of("StringConverter", {}, is_key=False, key="value.converter")
    stored = converter.to_bytes("t", schema, {"a": 1, "b": ["x", "y"], "c": None})
    assert stored == b"Struct{a=1,b=[x, y]}"
    assert converter.to_bytes("t", None, {"a": 1.0, "b": None}) == b"{a=1.0, b=null}"
    assert converter.to_bytes("t", ConnectSchema(Type.FLOAT32), 0.10000000149011612) == b"0.1"


def test_each_converter_is_known_by_its_names() -> None:
    for kind in CONVERTERS:
        for name in (kind.class_name, kind.short_name):
            assert converter_of(name, {}, is_key=False, key="value.converter") is not None


def test_unknown_names_and_settings_name_their_key() -> None:
    with pytest.raises(ConfigFault) as fault:
        converter_of("Other", {}, is_key=True, key="key.converter")
    assert list(fault.value.problems) == ["key.converter"]
    settings = {"schemas.enable": "maybe", "decimal.format": "HEX"}
    with pytest.raises(ConfigFault) as fault:
        converter_of("JsonConverter", settings, is_key=True, key="key.converter")
    assert set(fault.value.problems) == {
        "key.converter.schemas.enable",
        "key.converter.decimal.format",
    }


def test_headers_by_a_converter_of_values() -> None:
    converter = header_converter_of("org.apache.kafka.connect.storage.StringConverter", {})
    header = converter.to_header("t", "h", b"12")
    assert header == Header("h", "12", STRING.optional())
    assert converter.to_bytes("t", header) == b"12"
