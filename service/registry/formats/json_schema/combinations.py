"""Rules for `allOf`, `anyOf` and `oneOf`: each part has to find a counterpart of its own.

Parts may come in another order. So we look for a matching: as many pairs as can be of an old and
a new part that fits it, no part in two pairs. If it leaves parts of the smaller side alone, the
schemas do not fit. Equal parts are tried first, and others only where that is not enough, so
schemas of which little has changed are compared in time that grows with their length.
"""

from typing import Final

from service.registry.formats.json_schema.pairs import Pair, Thing
from storage.schemas.json_schema.documents import SchemaPlace
from storage.schemas.json_schema.reading import write

_MATCHING_DEPTH_MAX: Final = 200


def compare_combinations(pair: Pair) -> None:
    old_by, new_by = pair.old.criterion, pair.new.criterion
    if old_by != new_by and not _extended(pair):
        pair.broken("COMBINED_TYPE_CHANGED")
        return
    olds, news = _distinct(pair, pair.old.parts), _distinct(pair, pair.new.parts)
    if len(olds) < len(news) and new_by == "allOf":
        pair.broken("PRODUCT_TYPE_EXTENDED")
    if len(olds) > len(news) and old_by != "allOf":
        pair.broken("SUM_TYPE_NARROWED")
    if not _all_matched(pair, olds, news):
        pair.broken("COMBINED_TYPE_SUBSCHEMAS_CHANGED")


def _extended(pair: Pair) -> bool:
    """Whether the other way to combine allows all that the old one allows."""
    old, new = pair.old, pair.new
    return (
        new.criterion == "anyOf"
        or (len(old.parts) == 1 and (len(new.parts) == 1 or new.criterion == "oneOf"))
        or (len(new.parts) == 1 and old.criterion == "allOf")
    )


def _distinct(pair: Pair, parts: tuple[Thing, ...]) -> dict[str, Thing]:
    """Return the parts by what they say, each once."""
    distinct: dict[str, Thing] = {}
    for number, part in enumerate(parts):
        if isinstance(part, SchemaPlace):
            text = f"{part.base} {write(part.schema, in_order=True)}"
            pair.spend(len(text) // 1_000)
        else:
            # Parts of one schema, which are different keywords.
            text = f"{number} {part.kind} {part.integer}"
        distinct.setdefault(text, part)
    return distinct


def _all_matched(pair: Pair, olds: dict[str, Thing], news: dict[str, Thing]) -> bool:
    """Whether each part of the smaller side has a counterpart of its own.

    By augmenting paths: a part whose counterparts are all taken may have one of them if its
    owner finds another.
    """
    by_old = len(olds) <= len(news)
    few, many = (olds, news) if by_old else (news, olds)
    owners: dict[str, str] = {}

    def fits(one: str, other: str) -> bool:
        if by_old:
            return pair.fits(few[one], many[other])
        return pair.fits(many[other], few[one])

    def find(one: str, tried: set[str], depth: int) -> bool:
        if depth > _MATCHING_DEPTH_MAX:
            return False
        same = [one] if one in many else []
        for other in (*same, *many):
            if other in tried:
                continue
            pair.spend(1)
            if not fits(one, other):
                continue
            tried.add(other)
            if other not in owners or find(owners[other], tried, depth + 1):
                owners[other] = one
                return True
        return False

    return all(find(one, set(), 0) for one in few)
