"""Typed columns: values of many schemas as one Arrow type, a union of fields by name.

Each schema has a `Decoder`, with an Arrow type of its own. A `ColumnUnion` joins the types:

    schema 1   value_: struct<amount: int32, city: string>
    schema 2   value_: struct<amount: string, city: string, paid: bool>
    union      value_: struct<amount: int32, city: string, amount_v2: string, paid: bool>

What is equal in both is one field. Structs are joined field by field, lists and maps by what is in
them, and integers and floats take the wider type. Everything else is a conflict: the later one gets
another name. Names that differ only in case are the same name, since SQL does not tell them apart.

Types are those that Parquet, DuckDB and Spark have in common (docs/decisions/0050).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

JSON_TEXT: Final = pa.string()
"""The type of what has no columns of its own: unions, recursion, objects without properties."""

LEAVES_MAX: Final = 1000
"""Maximum number of columns in a file that one schema may add to it, counted in the union."""

DEPTH_MAX: Final = 16
"""What is nested deeper is JSON text."""

CELLS_MAX: Final = 4_000_000
"""Maximum number of cells that one value fills in lists and maps."""

ROWS_AT_ONCE: Final = 500
"""Values are Python objects in such numbers, before they are Arrow."""

PARTS_MAX: Final = 4 * LEAVES_MAX
"""Maximum number of parts of a schema; a few lines can say that each has two of the next."""

DECIMAL_DIGITS_MAX: Final = 38
"""Spark has no longer decimals."""

_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What pyarrow raises if a value does not fit into a type."""


class Decoder(Protocol):
    """Reads the data of one schema: without its id, and without Protobuf's message indexes."""

    @property
    def type(self) -> pa.DataType:
        """The type of the values."""

    def decode(self, data: Sequence[bytes]) -> list[Any]:
        """Return values that fit into `type`, and None for what does not decode."""


class SchemaPart:
    """A part of a schema: what it is in, and how many more parts may be looked at."""

    def __init__(self, around: tuple[str, ...] = (), left: list[int] | None = None) -> None:
        self._around = around
        self._left = left or [PARTS_MAX]

    def within(self, name: str = "") -> "SchemaPart":
        """Return a part of what has that name, or raise `ValueError` if there are too many."""
        self._left[0] -= 1
        if self._left[0] <= 0:
            raise ValueError(f"it has more than {PARTS_MAX} parts")
        return SchemaPart((*self._around, name), self._left)

    def __contains__(self, name: str) -> bool:
        return name in self._around

    @property
    def is_deep(self) -> bool:
        return len(self._around) > DEPTH_MAX


@dataclass(frozen=True, slots=True)
class Fit:
    """How values of one type fit into a wider one: which field becomes which."""

    fields: Mapping[str, tuple[str, "Fit"]] = field(default_factory=dict)
    """Of a struct: name in the wider one, by the name here."""
    item: "Fit | None" = None
    """Of a list or the values of a map."""


SAME: Final = Fit()


class ColumnUnion:
    """Named columns, and the fields in them, that hold values of all types added so far."""

    def __init__(self) -> None:
        self.fields: list[pa.Field] = []

    @property
    def leaf_count(self) -> int:
        return sum(leaf_count(each.type) for each in self.fields)

    def add(self, name: str, kind: pa.DataType) -> tuple[str, Fit] | None:
        """Widen the union for values of a type; return their column, and how they fit.

        None: there would be too many columns, and nothing has changed.
        """
        fields, chosen, fit = _joined(self.fields, name, kind)
        if sum(map(leaf_count, (each.type for each in fields))) > LEAVES_MAX:
            return None
        self.fields = fields
        return chosen, fit


def _joined(
    fields: Sequence[pa.Field], name: str, kind: pa.DataType
) -> tuple[list[pa.Field], str, Fit]:
    """Return the fields with room for one more, its name among them, and how it fits."""
    place = {each.name.lower(): number for number, each in enumerate(fields)}
    found = list(fields)
    for chosen in _names(name):
        at = place.get(chosen.lower())
        if at is None:
            # Joined with nothing: names in it may differ only in case.
            wide, fit = _wider(_bottom(kind), kind) or (kind, SAME)
            return [*found, pa.field(chosen, wide)], chosen, fit
        wider = _wider(found[at].type, kind)
        if wider is not None:
            found[at] = pa.field(found[at].name, wider[0])
            return found, found[at].name, wider[1]
    raise AssertionError("names do not end")


def _bottom(kind: pa.DataType) -> pa.DataType:
    """Return the type without its fields."""
    if pa.types.is_struct(kind):
        return pa.struct([])
    if pa.types.is_list(kind):
        return pa.list_(_bottom(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _bottom(kind.item_type))
    return kind


def _names(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_v{number}"
        number += 1


def _wider(left: pa.DataType, right: pa.DataType) -> tuple[pa.DataType, Fit] | None:
    """Return a type for values of both, and how those of `right` fit; None: there is none."""
    if pa.types.is_struct(left) and pa.types.is_struct(right):
        fields = list(left)
        fits: dict[str, tuple[str, Fit]] = {}
        for each in right:
            fields, chosen, fit = _joined(fields, each.name, each.type)
            fits[each.name] = (chosen, fit)
        return pa.struct(fields), Fit(fits)
    if pa.types.is_list(left) and pa.types.is_list(right):
        wider = _wider(left.value_type, right.value_type)
        return None if wider is None else (pa.list_(wider[0]), Fit(item=wider[1]))
    if pa.types.is_map(left) and pa.types.is_map(right):
        wider = _wider(left.item_type, right.item_type)
        return None if wider is None else (pa.map_(pa.string(), wider[0]), Fit(item=wider[1]))
    if left == right:
        return left, SAME
    for is_kind in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_kind(left) and is_kind(right):
            return max(left, right, key=lambda kind: kind.bit_width), SAME
    return None


def leaf_count(kind: pa.DataType) -> int:
    """Return how many columns of Parquet a type is."""
    return max(1, sum(leaf_count(kind.field(i).type) for i in range(kind.num_fields)))


def fitted(array: pa.Array, fit: Fit, kind: pa.DataType) -> pa.Array:
    """Return the values of a new array as `kind`, which a union has made of their type."""
    if pa.types.is_struct(kind):
        return _fitted_struct(array, fit, kind)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _fitted_items(array, fit.item or SAME, kind)
    return array if array.type == kind else array.cast(kind)


def _fitted_struct(array: pa.StructArray, fit: Fit, kind: pa.StructType) -> pa.StructArray:
    sources = {chosen: (name, inner) for name, (chosen, inner) in fit.fields.items()}
    children = []
    for each in kind:
        source = sources.get(each.name)
        if source is None:
            children.append(pa.nulls(len(array), each.type))
        else:
            children.append(fitted(array.field(source[0]), source[1], each.type))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _fitted_items(array: pa.Array, fit: Fit, kind: pa.DataType) -> pa.Array:
    if pa.types.is_map(kind):
        inner = pa.StructArray.from_arrays(
            [array.keys, fitted(array.items, fit, kind.item_type)],
            fields=[kind.key_field, kind.item_field],
        )
    else:
        inner = fitted(array.values, fit, kind.value_type)
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(array), [validity, offsets], array.null_count, children=[inner]
    )


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return decoded values as an array; null where one does not fit."""
    try:
        return pa.array(values, kind)
    except _UNFIT:
        if len(values) == 1:
            return pa.nulls(1, kind)
    half = len(values) // 2
    return pa.concat_arrays([array_of(values[:half], kind), array_of(values[half:], kind)])


def typed_array(decoder: Decoder, data: Sequence[bytes]) -> pa.Array:
    """Return values as an array; null where they do not decode."""
    parts = [
        array_of(decoder.decode(data[start : start + ROWS_AT_ONCE]), decoder.type)
        for start in range(0, len(data), ROWS_AT_ONCE)
    ]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


class CellsLeft:
    """How many cells a value may still fill: a few bytes may be items of a thousand columns."""

    def __init__(self) -> None:
        self._left = 0

    def begin(self) -> None:
        self._left = CELLS_MAX

    def take(self, items: int, kind: pa.DataType) -> None:
        """Raise `ValueError` if so many items of a type are too many."""
        self._left -= items * leaf_count(kind)
        if self._left < 0:
            raise ValueError(f"it has more than {CELLS_MAX} cells")


def each_or_none(read: Callable[[Any], Any], data: Sequence[Any]) -> list[Any]:
    """Return `read` of each of them; None where it raises anything: the data is anyone's."""
    found: list[Any] = []
    for each in data:
        try:
            found.append(read(each))
        except Exception:  # noqa: BLE001 - Libraries raise what they like on invalid data.
            found.append(None)
    return found


def is_column_name(name: str) -> bool:
    """Whether a field can be a column; names of JSON may be any text."""
    return bool(name) and name.isprintable()
