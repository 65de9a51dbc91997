"""From the text of an Avro schema to its tree, or why it is none.

The rules are those of Avro's specification and, where it is silent, of its implementation in Java,
because serializers are: names in letters of any alphabet, defaults that must fit one branch.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from storage.schemas.avro.types import (
    NO_DEFAULT,
    PRIMITIVES,
    AvroArray,
    AvroField,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)
from storage.schemas.source import InvalidSchema

LEVELS_MAX: Final = 100
"""Maximum depth of a schema as text, and of a default value."""

DEFAULT_STEPS_MAX: Final = 200_000
"""Maximum number of values that all defaults of a schema consist of."""

_NAMED: Final = {"record": "record", "error": "record", "enum": "enum", "fixed": "fixed"}
_OF_NAMES: Final = frozenset({"type", "name", "namespace", "doc", "aliases"})
_KNOWN: Final = {
    "record": _OF_NAMES | {"fields"},
    "enum": _OF_NAMES | {"symbols", "default"},
    "fixed": _OF_NAMES | {"size"},
    "array": frozenset({"type", "items"}),
    "map": frozenset({"type", "values"}),
}
_OF_FIELDS: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_INT_MAX: Final = 2**31
_LONG_MAX: Final = 2**63


def parse_avro(
    text: str, known: Mapping[str, AvroNamed], *, is_checked: bool = False
) -> tuple[AvroType, dict[str, AvroNamed]]:
    """Return the tree, and all names it can refer to: those that it defines, and `known`.

    With `is_checked`, the text is from the registry: to look at its defaults again would take long
    for a schema that refers to many.
    """
    reader = _Reader(known)
    tree = reader.type(_loaded(text), "", "", 0)
    if not is_checked:
        reader.check_defaults()
    return tree, reader.names


def _loaded(text: str) -> Any:
    if text.strip() in PRIMITIVES:
        # As some clients send it: the name of a type without quotes.
        return text.strip()
    try:
        return json.loads(
            text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_constant
        )
    except RecursionError:
        raise InvalidSchema(f"the schema nests more than {LEVELS_MAX} levels deep") from None
    except ValueError as error:
        raise InvalidSchema(f"an Avro schema is JSON, and this is none: {error}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the attribute {name!r:.100} is given twice in one object")
        found[name] = value
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.100} is larger than any double")
    return number


def _constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


class _Reader:
    def __init__(self, known: Mapping[str, AvroNamed]) -> None:
        self.names = dict(known)
        self._defaults: list[tuple[AvroField, str]] = []

    def type(self, node: Any, space: str, path: str, level: int) -> AvroType:
        if level > LEVELS_MAX:
            raise InvalidSchema(f"{path:.200}: the schema nests more than {LEVELS_MAX} levels deep")
        if isinstance(node, str):
            return AvroPrimitive(node) if node in PRIMITIVES else self._known(node, space, path)
        if isinstance(node, list):
            return self._union(node, space, path, level)
        if not isinstance(node, dict):
            raise InvalidSchema(f"{_at(path)}: a schema is a name, an object or a list of schemas")
        kind = node.get("type")
        if not isinstance(kind, str):
            raise InvalidSchema(f"{_at(path)}: 'type' must be the name of a type, as a string")
        if kind in PRIMITIVES:
            return AvroPrimitive(kind, _props(node, frozenset({"type"})))
        if kind in _NAMED:
            return self._named(node, _NAMED[kind], space, path, level)
        if kind in _KNOWN:
            inner = "items" if kind == "array" else "values"
            if inner not in node:
                raise InvalidSchema(f"{_at(path)}: {kind} needs {inner!r}")
            of = self.type(node[inner], space, f"{path}/{inner}", level + 1)
            props = _props(node, _KNOWN[kind])
            return AvroArray(of, props) if kind == "array" else AvroMap(of, props)
        return self._known(kind, space, path)

    def _known(self, name: str, space: str, path: str) -> AvroNamed:
        full_name = name if "." in name or not space else f"{space}.{name}"
        found = self.names.get(full_name) or self.names.get(name)
        if found is None:
            raise InvalidSchema(
                f"{_at(path)}: there is no type {full_name!r:.200}; define it before it is used, or"
                " add a reference with this name"
            )
        return found

    def _union(self, nodes: list[Any], space: str, path: str, level: int) -> AvroUnion:
        branches: list[AvroType] = []
        seen: set[str] = set()
        for number, node in enumerate(nodes):
            branch = self.type(node, space, f"{path}/{number}", level + 1)
            if isinstance(branch, AvroUnion):
                raise InvalidSchema(f"{_at(path)}: a union cannot be a branch of a union")
            name = branch.full_name if isinstance(branch, AvroNamed) else branch.kind
            if name in seen:
                raise InvalidSchema(f"{_at(path)}: the union has {name!r} twice")
            seen.add(name)
            branches.append(branch)
        return AvroUnion(branches)

    def _named(
        self, node: dict[str, Any], kind: str, space: str, path: str, level: int
    ) -> AvroNamed:
        full_name = _full_name(node, space, path)
        if full_name in PRIMITIVES:
            raise InvalidSchema(f"{_at(path)}: {full_name} is the name of a primitive type")
        if full_name in self.names:
            raise InvalidSchema(f"{_at(path)}: the type {full_name!r} is defined twice")
        found = AvroNamed(kind, full_name, node.get("doc"), props=_props(node, _KNOWN[kind]))
        inner = found.namespace
        found.aliases = [
            each if "." in each or not inner else f"{inner}.{each}"
            for each in _texts(node.get("aliases", []), f"{path}/aliases")
        ]
        self.names[full_name] = found
        if kind == "record":
            self._fields(found, node, path, level)
        elif kind == "enum":
            _symbols(found, node, path)
        else:
            size = node.get("size")
            if type(size) is not int or not 0 <= size < _INT_MAX:
                raise InvalidSchema(f"{_at(path)}: fixed needs 'size', a number of bytes")
            found.size = size
        return found

    def _fields(self, record: AvroNamed, node: dict[str, Any], path: str, level: int) -> None:
        nodes = node.get("fields")
        if not isinstance(nodes, list):
            raise InvalidSchema(f"{_at(path)}: a record needs 'fields', a list")
        seen: set[str] = set()
        for number, each in enumerate(nodes):
            here = f"{path}/fields/{number}"
            if not isinstance(each, dict) or "type" not in each:
                raise InvalidSchema(f"{here:.200}: a field is an object with 'name' and 'type'")
            name = each.get("name")
            if not isinstance(name, str) or not _is_name(name):
                raise InvalidSchema(f"{here:.200}: {name!r:.100} is not a name of a field")
            if name in seen:
                raise InvalidSchema(f"{here:.200}: the record has two fields {name!r}")
            seen.add(name)
            order = each.get("order", "ascending")
            if order not in ("ascending", "descending", "ignore"):
                raise InvalidSchema(f"{here:.200}: order is ascending, descending or ignore")
            found = AvroField(
                name,
                self.type(each["type"], record.namespace, f"{here}/type", level + 1),
                each.get("doc"),
                each.get("default", NO_DEFAULT),
                order,
                _texts(each.get("aliases", []), f"{here}/aliases"),
                _props(each, _OF_FIELDS),
            )
            record.fields.append(found)
            if found.default is not NO_DEFAULT:
                self._defaults.append((found, here))

    def check_defaults(self) -> None:
        """Raise unless every default fits its type; at the end, when all types are complete."""
        checker = _Defaults()
        for field, path in self._defaults:
            if not checker.fits(field.type, field.default, 0):
                shown = json.dumps(field.default)
                raise InvalidSchema(
                    f"{path:.200}: the default {shown:.100} of {field.name!r} does not fit its type"
                )


def _symbols(enum: AvroNamed, node: dict[str, Any], path: str) -> None:
    enum.symbols = _texts(node.get("symbols"), f"{path}/symbols")
    for symbol in enum.symbols:
        if not _is_name(symbol):
            raise InvalidSchema(f"{_at(path)}: {symbol!r:.100} is not a symbol of an enum")
    if len(set(enum.symbols)) != len(enum.symbols):
        raise InvalidSchema(f"{_at(path)}: the enum {enum.full_name!r} has a symbol twice")
    default = node.get("default")
    if default is not None and default not in enum.symbols:
        raise InvalidSchema(f"{_at(path)}: the default {default!r:.100} is no symbol of the enum")
    enum.enum_default = default


class _Defaults:
    """Checks default values, all of one schema within one number of steps."""

    def __init__(self) -> None:
        self._steps = 0

    def fits(self, kind: AvroType, value: Any, level: int) -> bool:
        self._steps += 1
        if self._steps > DEFAULT_STEPS_MAX or level > LEVELS_MAX:
            raise InvalidSchema("the defaults of the schema are too large, or contain themselves")
        if isinstance(kind, AvroPrimitive):
            return _fits_primitive(kind.kind, value)
        if isinstance(kind, AvroUnion):
            return any(self.fits(each, value, level + 1) for each in kind.branches)
        if isinstance(kind, AvroArray):
            return isinstance(value, list) and all(
                self.fits(kind.items, each, level + 1) for each in value
            )
        if isinstance(kind, AvroMap):
            return isinstance(value, dict) and all(
                self.fits(kind.values, each, level + 1) for each in value.values()
            )
        if kind.kind == "enum":
            return isinstance(value, str) and value in kind.symbols
        if kind.kind == "fixed":
            return isinstance(value, str)
        return isinstance(value, dict) and all(
            (given := value.get(each.name, each.default)) is not NO_DEFAULT
            and self.fits(each.type, given, level + 1)
            for each in kind.fields
        )


def _fits_primitive(kind: str, value: Any) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("bytes", "string"):
        return isinstance(value, str)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in ("float", "double"):
        return True
    bound = _INT_MAX if kind == "int" else _LONG_MAX
    return float(value).is_integer() and -bound <= value < bound


def _full_name(node: dict[str, Any], space: str, path: str) -> str:
    name, given = node.get("name"), node.get("namespace", space)
    if not isinstance(name, str) or not name:
        raise InvalidSchema(f"{_at(path)}: {node['type']} needs 'name'")
    if not isinstance(given, str | None):
        raise InvalidSchema(f"{_at(path)}: 'namespace' must be a string")
    full_name = name if "." in name or not given else f"{given}.{name}"
    if not all(_is_name(part) for part in full_name.split(".")):
        raise InvalidSchema(
            f"{_at(path)}: {full_name!r:.200} is not a name; its parts are letters, digits and"
            " underscores, and begin with no digit"
        )
    return full_name


def _is_name(text: str) -> bool:
    plain = text.replace("_", "a")
    return plain[:1].isalpha() and plain.isalnum()


def _texts(value: Any, path: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise InvalidSchema(f"{path:.200}: must be a list of strings")
    return value


def _props(node: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in node.items() if name not in known}


def _at(path: str) -> str:
    return path[:200] or "/"
