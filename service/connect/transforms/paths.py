"""Paths to fields: a name, or in version 2 of the syntax names of nested fields.

a.b         field `b` of field `a`
`a.b`.c     field `c` of field `a.b`; a backtick that is not before a dot is part of the name
"""

from collections.abc import Callable, Sequence
from typing import Any

from service.connect.data.errors import DataFault
from service.connect.data.schema import ConnectSchema, Type, default_of
from service.connect.transforms.sides import not_a_map, not_a_struct

_PURPOSE = "nested field access"


def steps_of(text: str, version: str) -> Sequence[str]:
    """Return the names on a path; raise `ValueError` if a backtick has no second one."""
    if version.upper() == "V1":
        return [text]
    steps = []
    at = 0
    while at < len(text):
        if text[at] == "`":
            step, at = _quoted(text, at)
        else:
            dot = text.find(".", at)
            end = len(text) if dot < 0 else dot
            step, at = text[at:end], end + 1
        steps.append(step)
    if text.endswith("."):
        steps.append("")
    if not steps:
        raise ValueError("must not be empty")
    return steps


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return the name between backticks, and where the next one starts."""
    name, begun, at = "", start + 1, start + 1
    while True:
        at = text.find("`", at)
        if at < 0:
            raise _unpaired(text, start)
        is_escaped = text[at - 1] == "\\"
        if at == len(text) - 1:
            if is_escaped:
                raise _unpaired(text, start)
            return name + text[begun:at], at + 1
        if text[at + 1] == "." and not is_escaped:
            return name + text[begun:at], at + 2
        if text[at + 1] == ".":
            name += text[begun : at - 1] + "`"
            begun = at + 1
        at += 1


def _unpaired(text: str, start: int) -> ValueError:
    return ValueError(
        f"Incomplete backtick pair in path: [{text}], consider adding a backslash before backtick "
        f"at position {start} to escape it"
    )


class FieldPath:
    def __init__(self, steps: Sequence[str]) -> None:
        self._above, self._last = steps[:-1], steps[-1]

    def schema_in(self, schema: ConnectSchema) -> ConnectSchema | None:
        """Return the schema of the field; None: there is no such field."""
        for step in (*self._above, self._last):
            if schema.type is not Type.STRUCT:
                raise DataFault("Cannot look up fields on non-struct type")
            field = schema.by_name.get(step)
            if field is None:
                return None
            schema = field.schema
        return schema

    def value_in(self, value: dict[str, Any]) -> Any:
        """Return the field of a value without a schema; None: it has none."""
        for step in self._above:
            below = value.get(step)
            if below is None:
                return None
            if type(below) is not dict:
                raise not_a_map(below, _PURPOSE)
            value = below
        return value.get(self._last)

    def reader(
        self, schema: ConnectSchema, *, with_defaults: bool
    ) -> Callable[[dict[str, Any]], Any]:
        """Return what reads the field of values of this schema, which has it."""
        above = []
        for step in self._above:
            schema = schema.by_name[step].schema
            above.append((step, default_of(schema)))
        last = self._last
        default = default_of(schema.by_name[last].schema) if with_defaults else None

        def read(value: dict[str, Any]) -> Any:
            for step, stand_in in above:
                below = value.get(step)
                if below is None:
                    below = stand_in
                if below is None:
                    return None
                if type(below) is not dict:
                    raise not_a_struct(below, _PURPOSE)
                value = below
            found = value.get(last)
            return default if found is None else found

        return read
