"""The smallest history that still shows what is wrong: the same rule, and the same words.

It leaves out operations, as many at once as it can, and then what those that are left have read,
as long as the rule still says what it said. Only that rule is asked. What remains may break other
rules, and often does: a reader that is left alone read what nobody wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.checker.history import RULES, History
from tests.checker.operations import Entry, encode, entries, history_from, operations

T = TypeVar("T")


def smallest(history: History, violation: str) -> History:
    """Return what is left of `history` for `violation`, which is a line of its violations."""
    name, _, problem = violation.partition(": ")
    rule = RULES[name]

    def is_shown(found: Sequence[Entry]) -> bool:
        return any(words == problem for words in rule(history_from(found)))

    kept = entries(history)
    if not is_shown(kept):
        raise ValueError(f"the history does not show it: {violation}")
    kept = fewest(kept, is_shown)
    for number, entry in enumerate(kept):
        for part in entry.kind.parts:
            kept[number] = _with_fewest(kept, number, part, is_shown)
    return history_from(kept)


def lines(history: History) -> str:
    """Return a history as operations, one on each line."""
    return b"".join(map(encode, operations(history))).decode()


def fewest(items: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return items of which none can be left out, in their order.

    Half of them at once, then quarters, and so on. Where a few matter, each size costs few looks,
    and the looks get shorter as fast as their number grows.
    """
    kept = list(items)
    size = max(1, len(kept) // 2)
    while True:
        count = len(kept)
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            if is_enough(rest):
                kept = rest
            else:
                start += size
        if size == 1 and len(kept) == count:
            return kept
        size = max(1, min(size // 2, len(kept) // 2))


def _with_fewest(
    kept: Sequence[Entry], number: int, part: str, is_shown: Callable[[Sequence[Entry]], bool]
) -> Entry:
    """Return one entry with as little as is needed of one of its parts."""
    kind, record = kept[number]
    whole: Any = getattr(record, part)
    if whole is None:
        return kept[number]

    def with_items(items: Sequence[Any]) -> Entry:
        return Entry(kind, replace(record, **{part: type(whole)(items)}))

    def is_enough(items: Sequence[Any]) -> bool:
        return is_shown([*kept[:number], with_items(items), *kept[number + 1 :]])

    items = list(whole.items()) if isinstance(whole, Mapping) else list(whole)
    return with_items(fewest(items, is_enough))
