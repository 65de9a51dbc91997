"""Schemas of Connect from JSON Schema, and values from JSON.

`oneOf` and `anyOf` of null and one type are that type, optional; with more types they are a STRUCT
with a field for each. Schemas that allow anything, and those that contain themselves, have none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from service.connect.converters.json.reading import Reader, reader_of
from service.connect.converters.registry.converter import PartsLeft
from service.connect.converters.registry.json_schema import names
from service.connect.converters.registry.json_schema.from_connect import is_object
from service.connect.data.errors import DataFault
from service.connect.data.schema import (
    STRING,
    ConnectField,
    ConnectSchema,
    Type,
    default_of,
)
from storage.schemas.json_schema.documents import Documents, SchemaPlace
from storage.schemas.json_schema.reading import Number

_NUMBERS: Final[Mapping[str, Type]] = {
    kind.value: kind
    for kind in (
        *(Type.INT8, Type.INT16, Type.INT32, Type.INT64),
        *(Type.FLOAT32, Type.FLOAT64, Type.BYTES),
    )
}
_FITS: Final[Mapping[Type, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        (Type.INT8, Type.INT16, Type.INT32, Type.INT64),
        lambda said: (
            type(said) is int or (type(said) is Decimal and said == said.to_integral_value())
        ),
    ),
    **dict.fromkeys((Type.FLOAT32, Type.FLOAT64), lambda said: type(said) in (int, Decimal)),
    Type.BOOLEAN: lambda said: type(said) is bool,
    Type.STRING: lambda said: type(said) is str,
    Type.BYTES: lambda said: type(said) is str or type(said) is Decimal,
    Type.ARRAY: lambda said: type(said) is list,
    Type.MAP: lambda said: type(said) in (dict, list),
}


def connect_of(documents: Documents, *, optional_unless_required: bool) -> ConnectSchema:
    """Return the schema of Connect; raise `DataFault` if there is none.

    `optional_unless_required`: fields that JSON Schema does not require are optional.
    """
    return _Reading(documents, optional_unless_required).of(documents.root)


class _Reading:
    def __init__(self, documents: Documents, optional_unless_required: bool) -> None:
        self._documents = documents
        self._optional_unless_required = optional_unless_required
        self._around: list[Any] = []
        self._left = PartsLeft()

    def of(self, place: SchemaPlace, *, optional: bool = False) -> ConnectSchema:
        self._left.take()
        said = place.schema
        if not isinstance(said, dict) or any(said is each for each in self._around):
            raise DataFault("a schema that allows anything, or contains itself, has no type")
        self._around.append(said)
        try:
            return self._of(place, said, optional)
        finally:
            self._around.pop()

    def _of(self, place: SchemaPlace, said: dict[str, Any], optional: bool) -> ConnectSchema:
        reference = said.get("$ref")
        if isinstance(reference, str):
            return self.of(self._documents.resolve(reference, place), optional=optional)
        for keyword in ("oneOf", "anyOf"):
            if isinstance(branches := said.get(keyword), list):
                return self._union(place, said, branches, optional)
        if isinstance(branches := said.get("allOf"), list):
            return self._all(place, branches, optional)
        kinds = said.get("type")
        if isinstance(kinds, list):
            return self._union(place, said, [{**said, "type": kind} for kind in kinds], optional)
        return self._with_attributes(self._typed(place, said), said, optional)

    def _typed(self, place: SchemaPlace, said: dict[str, Any]) -> ConnectSchema:
        kind, hint = said.get("type"), said.get(names.TYPE)
        match kind:
            case "integer" | "number":
                usual = Type.INT64 if kind == "integer" else Type.FLOAT64
                return ConnectSchema(_NUMBERS.get(str(hint), usual))
            case "boolean":
                return ConnectSchema(Type.BOOLEAN)
        if kind in (None, "string") and ("enum" in said or "const" in said):
            return _enum(said["enum"] if "enum" in said else [said["const"]])
        if kind == "string":
            return ConnectSchema(Type.BYTES if hint == "bytes" else Type.STRING)
        if kind == "array" or (kind is None and "items" in said):
            return self._array(place, said, hint)
        if kind == "object" or (kind is None and "properties" in said):
            if hint == "map":
                values = self.of(place.at(said.get("additionalProperties")))
                return ConnectSchema(Type.MAP, key_schema=STRING, value_schema=values)
            return self._object([(place, said)])
        raise DataFault(f"Unsupported schema type {kind!r}")

    def _array(self, place: SchemaPlace, said: dict[str, Any], hint: Any) -> ConnectSchema:
        items = said.get("items")
        if not isinstance(items, dict):
            raise DataFault("Array schema did not specify the items type")
        entry = items.get("properties")
        if hint == "map" and isinstance(entry, dict) and {"key", "value"} <= entry.keys():
            inner = place.at(items)
            return ConnectSchema(
                Type.MAP,
                key_schema=self.of(inner.at(entry["key"])),
                value_schema=self.of(inner.at(entry["value"])),
            )
        return ConnectSchema(Type.ARRAY, value_schema=self.of(place.at(items)))

    def _object(self, parts: Sequence[tuple[SchemaPlace, dict[str, Any]]]) -> ConnectSchema:
        """Return the STRUCT of all properties of these objects, in the order of their indexes."""
        found: dict[str, tuple[int, ConnectField]] = {}
        for place, said in parts:
            properties = said.get("properties")
            required = said.get("required")
            for name, inner in (properties if isinstance(properties, dict) else {}).items():
                is_required = isinstance(required, list) and name in required
                optional = self._optional_unless_required and not is_required
                schema = self.of(place.at(inner), optional=optional)
                index = _whole(inner.get(names.INDEX)) if isinstance(inner, dict) else None
                at = len(found) if index is None else index
                found[name] = at, ConnectField(name, schema)
        ordered = sorted(found.values(), key=lambda each: each[0])
        return ConnectSchema(Type.STRUCT, fields=tuple(field for _, field in ordered))

    def _union(
        self, place: SchemaPlace, said: dict[str, Any], branches: Sequence[Any], optional: bool
    ) -> ConnectSchema:
        others = [each for each in branches if not _is_null(each)]
        has_null = len(others) < len(branches)
        if len(others) == 1:
            return self.of(place.at(others[0]), optional=optional or has_null)
        fields = [
            ConnectField(f"{names.ONE_OF}.field.{number}", self.of(place.at(each), optional=True))
            for number, each in enumerate(others)
        ]
        union = ConnectSchema(Type.STRUCT, name=names.ONE_OF, fields=tuple(fields))
        plain = {key: value for key, value in said.items() if key not in ("title", "default")}
        return replace(self._with_attributes(union, plain, optional or has_null), name=names.ONE_OF)

    def _all(self, place: SchemaPlace, branches: Sequence[Any], optional: bool) -> ConnectSchema:
        parts: list[tuple[SchemaPlace, dict[str, Any]]] = []
        for each in branches:
            inner = place.at(each)
            if isinstance(each, dict) and isinstance(reference := each.get("$ref"), str):
                inner = self._documents.resolve(reference, inner)
            if isinstance(inner.schema, dict):
                parts.append((inner, inner.schema))
        if any("properties" in said for _, said in parts):
            return replace(self._object(parts), is_optional=optional)
        typed = [inner for inner, said in parts if said.keys() & _TYPED]
        if not typed:
            raise DataFault("Unsupported criterion allOf: none of its schemas has a type")
        return self.of(typed[0], optional=optional)

    def _with_attributes(
        self, schema: ConnectSchema, said: Mapping[str, Any], optional: bool
    ) -> ConnectSchema:
        parameters = dict(schema.parameters)
        given = said.get(names.PARAMETERS)
        for name, text in (given if isinstance(given, dict) else {}).items():
            if not isinstance(text, str):
                raise DataFault("Schema parameters must have string values.")
            parameters[name] = text
        title, doc = said.get("title"), said.get("description")
        made = replace(
            schema,
            is_optional=optional,
            name=title if isinstance(title, str) else None,
            doc=doc if isinstance(doc, str) else None,
            version=_whole(said.get(names.VERSION)),
            parameters=tuple(parameters.items()),
        )
        if said.get("default") is None:
            return made
        try:
            return replace(made, default=value_reader(made)(_exact(said["default"])))
        except DataFault:
            return made


_TYPED: Final = frozenset({"type", "enum", "const", "oneOf", "anyOf", "allOf", "items"})


def _exact(said: Any) -> Any:
    """Return JSON of a schema with numbers as values have them."""
    match said:
        case Number():
            return int(said) if said.text.lstrip("-").isdecimal() else Decimal(said)
        case list():
            return [_exact(each) for each in said]
        case dict():
            return {name: _exact(each) for name, each in said.items()}
    return said


def _whole(said: Any) -> int | None:
    exact = _exact(said)
    return exact if type(exact) is int else None


def _is_null(said: Any) -> bool:
    return isinstance(said, dict) and said.get("type") == "null"


def _enum(symbols: Any) -> ConnectSchema:
    names_of = [
        names.NULL_SYMBOL if each is None else str(each)
        for each in (symbols if isinstance(symbols, list) else [])
    ]
    parameters = ((names.ENUM, ""), *((f"{names.ENUM}.{name}", name) for name in names_of))
    return ConnectSchema(Type.STRING, parameters=parameters)


def value_reader(schema: ConnectSchema) -> Reader:
    """Return what reads values; numbers with a point are `Decimal`."""
    match schema.type:
        case Type.ARRAY:
            assert schema.value_schema is not None
            element = value_reader(schema.value_schema)
            return _or_null(schema, lambda said: [element(each) for each in _is(said, list)])
        case Type.MAP:
            return _or_null(schema, _map_reader(schema))
        case Type.STRUCT if schema.name == names.ONE_OF:
            return _or_null(schema, _union_reader(schema))
        case Type.STRUCT:
            readers = [(field.name, value_reader(field.schema)) for field in schema.fields]
            return _or_null(schema, lambda said: _struct(_is(said, dict), readers))
    return reader_of(schema, with_defaults=True)


def _is(said: Any, kind: type) -> Any:
    if type(said) is not kind:
        raise DataFault(f"a JSON {kind.__name__} is needed, found {type(said).__name__}")
    return said


def _struct(said: dict[str, Any], readers: Sequence[tuple[str, Reader]]) -> dict[str, Any]:
    value = {}
    for name, read in readers:
        each = said.get(name)
        # As in Kafka, a field that is not there at all is null, required or not.
        value[name] = None if each is None and name not in said else read(each)
    return value


def _or_null(schema: ConnectSchema, read: Reader) -> Reader:
    default = default_of(schema)
    kind = schema.type.name

    def with_null(said: Any) -> Any:
        if said is not None:
            return read(said)
        if default is None and not schema.is_optional:
            raise DataFault(f"Invalid null value for required {kind} field")
        return default

    return with_null


def _map_reader(schema: ConnectSchema) -> Reader:
    assert schema.value_schema is not None
    assert schema.key_schema is not None
    element = value_reader(schema.value_schema)
    if is_object(schema.key_schema):
        return lambda said: {key: element(each) for key, each in _is(said, dict).items()}
    key_of = value_reader(schema.key_schema)

    def read(said: Any) -> dict[Any, Any]:
        found = {}
        for entry in _is(said, list):
            if _is(entry, dict).keys() != {"key", "value"}:
                raise DataFault("Found invalid map entry, expected a key and a value")
            key = key_of(entry["key"])
            if isinstance(key, list | dict):
                raise DataFault("a map whose keys are lists or structures")
            found[key] = element(entry["value"])
        return found

    return read


def _union_reader(schema: ConnectSchema) -> Reader:
    branches = [(field.name, field.schema, value_reader(field.schema)) for field in schema.fields]

    def read(said: Any) -> dict[str, Any]:
        best: tuple[int, str, Reader] | None = None
        for name, of, read_branch in branches:
            fits = _FITS.get(of.type)
            if fits is not None and fits(said):
                return {name: read_branch(said)}
            shared = len(of.by_name.keys() & said.keys()) if type(said) is dict else 0
            if fits is None and shared > (best[0] if best else 0):
                best = shared, name, read_branch
        if best is None:
            raise DataFault("Did not find matching oneof field for data")
        return {best[1]: best[2](said)}

    return read
