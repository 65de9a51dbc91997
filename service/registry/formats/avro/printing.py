"""From the tree of an Avro schema to its one text.

The order of attributes is that of Avro in Java, so that the text is what its serializers expect to
get back. Ids depend on this text: it never changes (`tests/service/registry/formats` freezes it).
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from storage.schemas.avro.types import (
    NO_DEFAULT,
    AvroArray,
    AvroField,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)


def print_avro(tree: AvroType, known: Iterable[str], *, is_sorted: bool = False) -> str:
    """Return the text of a schema; types named in `known` are defined elsewhere.

    With `is_sorted`, attributes that Avro does not define are in the order of their names.
    """
    shown = _Printer(set(known), is_sorted).shown(tree, "")
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


class _Printer:
    def __init__(self, seen: set[str], is_sorted: bool) -> None:
        self._seen = seen
        self._is_sorted = is_sorted

    def shown(self, tree: AvroType, space: str) -> Any:
        if isinstance(tree, AvroPrimitive):
            return {"type": tree.kind, **self._props(tree.props)} if tree.props else tree.kind
        if isinstance(tree, AvroUnion):
            return [self.shown(each, space) for each in tree.branches]
        if isinstance(tree, AvroArray):
            items = self.shown(tree.items, space)
            return {"type": "array", "items": items, **self._props(tree.props)}
        if isinstance(tree, AvroMap):
            values = self.shown(tree.values, space)
            return {"type": "map", "values": values, **self._props(tree.props)}
        if tree.full_name in self._seen:
            return tree.name if tree.namespace == space else tree.full_name
        self._seen.add(tree.full_name)
        return self._definition(tree, space)

    def _definition(self, tree: AvroNamed, space: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": tree.kind, "name": tree.name}
        if tree.namespace != space:
            shown["namespace"] = tree.namespace
        if tree.doc is not None:
            shown["doc"] = tree.doc
        if tree.kind == "record":
            shown["fields"] = [self._field(each, tree.namespace) for each in tree.fields]
        elif tree.kind == "enum":
            shown["symbols"] = tree.symbols
            if tree.enum_default is not None:
                shown["default"] = tree.enum_default
        else:
            shown["size"] = tree.size
        shown.update(self._props(tree.props))
        if tree.aliases:
            shown["aliases"] = [_from(each, tree.namespace) for each in tree.aliases]
        return shown

    def _field(self, field: AvroField, space: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"name": field.name, "type": self.shown(field.type, space)}
        if field.doc is not None:
            shown["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            shown["default"] = field.default
        if field.order != "ascending":
            shown["order"] = field.order
        if field.aliases:
            shown["aliases"] = field.aliases
        shown.update(self._props(field.props))
        return shown

    def _props(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self._is_sorted else dict(props)


def _from(full_name: str, space: str) -> str:
    """Return how a name is written inside a namespace."""
    namespace, _, name = full_name.rpartition(".")
    return name if namespace == space else full_name
