"""What a schema allows beside the properties or items that it names: its content model.

Open: anything. Closed: nothing. Partially open: what fits some schema.
"""

from typing import Any

from service.registry.formats.json_schema.pairs import Pair
from service.registry.formats.json_schema.shapes import Shape
from storage.schemas.json_schema.documents import SchemaPlace
from storage.schemas.json_schema.drafts import Dialect


def rest_of(shape: Shape, keyword: str) -> SchemaPlace | bool:
    """Return what `keyword` says of the rest: a schema, or whether it is allowed."""
    value = shape.keywords.get(keyword)
    if isinstance(value, dict) and value:
        return shape.place.at(value)
    return value is not False


def unevaluated(shape: Shape, keyword: str) -> SchemaPlace | bool | None:
    """Return what `keyword` says of what no other one looks at; None if it says nothing."""
    if keyword not in shape.keywords or shape.place.draft < Dialect.DRAFT_2019_09:
        return None
    return rest_of(shape, keyword)


def compare_rest(
    pair: Pair, old: SchemaPlace | bool, new: SchemaPlace | bool, path: str, rule: str
) -> None:
    """Report if the new schema allows less of the rest than the old one."""
    if old is False or new is True:
        return
    if new is False:
        pair.broken(f"{rule}_REMOVED", path)
    elif old is True:
        pair.broken(f"{rule}_NARROWED", path)
    elif isinstance(old, SchemaPlace):
        pair.between(old, new, path)


def compare_unevaluated(pair: Pair, keyword: str, rule: str) -> None:
    old, new = unevaluated(pair.old, keyword), unevaluated(pair.new, keyword)
    if new is not None:
        compare_rest(pair, True if old is None else old, new, keyword, rule)


def schemas_by_name(shape: Shape, keyword: str) -> dict[str, Any]:
    """Return the schemas that `keyword` names."""
    named = shape.keywords.get(keyword)
    return named if isinstance(named, dict) else {}
