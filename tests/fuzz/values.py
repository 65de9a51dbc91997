"""Strategies for values of any type that msgspec decodes, derived from its declaration."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from service.security.api_keys.scopes import NamePattern

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-2, 100)
ITEMS_MAX = 3

WITH_RULES: dict[type, st.SearchStrategy[Any]] = {
    NamePattern: st.builds(NamePattern, exact=st.text(min_size=1, max_size=8))
    | st.builds(NamePattern, prefix=st.text(max_size=8)),
}
"""Structs whose fields depend on each other."""


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of `kind`: a struct, or any type of its fields."""
    return _drawn(inspect.type_info(kind))


def packed(kind: Any) -> st.SearchStrategy[bytes]:
    return values_of(kind).map(msgspec.msgpack.encode)


def json_of(kind: Any) -> st.SearchStrategy[bytes]:
    return values_of(kind).map(msgspec.json.encode)


def _drawn(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case (
            inspect.StructType(cls=cls, fields=fields)
            | inspect.DataclassType(cls=cls, fields=fields)
        ):
            return _built(cls, fields)
        case inspect.Metadata(type=inner):
            return _drawn(inner)
        case inspect.UnionType(types=kinds):
            return st.one_of(*map(_drawn, kinds))
        case inspect.ListType(item_type=item, min_length=low):
            return st.lists(_drawn(item), min_size=low or 0, max_size=ITEMS_MAX)
        case inspect.VarTupleType(item_type=item):
            return st.lists(_drawn(item), max_size=ITEMS_MAX).map(tuple)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(_drawn, items))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_drawn(key), _drawn(value), max_size=ITEMS_MAX)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case _:
            return _scalar(kind)


def _built(kind: type, fields: tuple[inspect.Field, ...]) -> st.SearchStrategy[Any]:
    if kind in WITH_RULES:
        return WITH_RULES[kind]
    return st.builds(kind, **{field.name: _drawn(field.type) for field in fields})


def _scalar(kind: inspect.Type) -> st.SearchStrategy[Any]:
    match kind:
        case inspect.IntType(ge=low, le=high):
            return SMALL.filter(
                lambda n: (low is None or n >= low) and (high is None or n <= high)
            ) | (st.integers(-(2**63) if low is None else low, 2**63 - 1 if high is None else high))
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern, alphabet=st.characters(exclude_characters="\n"))
        case inspect.StrType(min_length=low, max_length=high):
            return st.text(min_size=low or 0, max_size=min(8, high or 8))
        case inspect.BytesType():
            return st.binary(max_size=16)
        case inspect.BoolType():
            return st.booleans()
        case inspect.FloatType(gt=None, ge=low, le=high):
            return st.floats(low, high, allow_nan=False, allow_infinity=False)
        case inspect.FloatType(gt=low, le=high):
            return st.floats(low, high, exclude_min=True, allow_nan=False, allow_infinity=False)
        case inspect.NoneType():
            return st.none()
        case inspect.AnyType():
            return st.none() | st.booleans() | SMALL | st.text(max_size=4)
        case _:
            raise NotImplementedError(f"say how to draw {kind}")
