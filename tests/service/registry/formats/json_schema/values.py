"""Random schemas, small changes of them, and data that fits some of them.

Without what our documents except: defaults, formats, `oneOf` of alternatives that overlap,
properties that are required but not named, and schemas without `type`.
"""

import copy
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from("abc")
TEXTS = st.sampled_from(["", "a", "ab", "ba", "abc"])
NUMBERS = st.sampled_from([-1, 0, 1, 2, 3, 4, 6, 2.5])
COUNTS = st.integers(0, 3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | TEXTS | NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def _some_of(kind: Any, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = st.fixed_dictionaries({"type": st.just(kind)}, optional=keywords)
    return optional.map(_with_required)


def _with_required(schema: dict[str, Any]) -> dict[str, Any]:
    if "required" in schema:
        named = schema.get("properties", {})
        schema["required"] = sorted({name for name in schema["required"] if name in named})
    return schema


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    either = st.booleans() | inner
    lists = st.lists(inner, min_size=1, max_size=3)
    return (
        _some_of(
            "object",
            properties=st.dictionaries(NAMES, either, max_size=3),
            required=st.lists(NAMES, max_size=2),
            additionalProperties=either,
            minProperties=COUNTS,
            maxProperties=COUNTS,
            dependencies=st.dictionaries(NAMES, st.lists(NAMES, max_size=2, unique=True)),
        )
        | _some_of(
            "array",
            items=either | st.lists(either, min_size=1, max_size=3),
            additionalItems=either,
            minItems=COUNTS,
            maxItems=COUNTS,
            uniqueItems=st.booleans(),
        )
        | st.fixed_dictionaries({"anyOf": lists})
        | st.fixed_dictionaries({"allOf": lists})
        | st.fixed_dictionaries({"not": inner})
    )


_SCALARS = (
    _some_of(
        "string", minLength=COUNTS, maxLength=COUNTS, pattern=st.sampled_from(["^a", "b$", "b"])
    )
    | st.sampled_from(["number", "integer"]).flatmap(
        lambda kind: _some_of(
            kind,
            minimum=NUMBERS,
            maximum=NUMBERS,
            exclusiveMinimum=NUMBERS,
            exclusiveMaximum=NUMBERS,
            multipleOf=st.sampled_from([1, 2, 3, 0.5]),
        )
    )
    | st.sampled_from([{"type": "null"}, {"type": "boolean"}, {}])
    | st.lists(st.sampled_from(["string", "null", "integer"]), min_size=1, unique=True).map(
        lambda kinds: {"type": kinds}
    )
    | st.lists(VALUES, min_size=1, max_size=3, unique_by=repr).map(lambda values: {"enum": values})
    | VALUES.map(lambda value: {"const": value})
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(_SCALARS, _compound, max_leaves=6)


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """Return `schema` with one keyword, somewhere in it, removed or taken from another one."""
    new = copy.deepcopy(schema)
    places = [place for place in _objects(new) if place]
    if not places:
        return new
    place = draw(st.sampled_from(places))
    keyword = draw(st.sampled_from(sorted(place)))
    if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        place[keyword] = draw(NUMBERS)
    elif keyword in ("minLength", "maxLength", "minItems", "maxItems") or "Prop" in keyword[3:6]:
        place[keyword] = draw(COUNTS)
    elif keyword in ("anyOf", "allOf", "items", "enum") and isinstance(place[keyword], list):
        place[keyword] = draw(st.permutations(place[keyword]))[: draw(st.integers(1, 3))]
    elif keyword in ("items", "additionalItems", "additionalProperties", "not"):
        place[keyword] = draw(SCHEMAS)
    elif keyword not in ("type", "properties", "const"):
        del place[keyword]
    return new


def _objects(schema: Any) -> list[dict[str, Any]]:
    """Return all schemas in `schema` that are objects."""
    if not isinstance(schema, dict):
        return []
    within = [*schema.get("properties", {}).values()]
    for keyword in ("items", "additionalItems", "additionalProperties", "not", "anyOf", "allOf"):
        value = schema.get(keyword, [])
        within += value if isinstance(value, list) else [value]
    return [schema, *(found for inner in within for found in _objects(inner))]
