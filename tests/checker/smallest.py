"""The smallest history that still shows a violation: the same rule, and the same words.

It removes operations, as many at once as possible, and then items that the remaining ones read,
while the rule still yields the same words. Only that rule is checked. What remains often breaks
other rules: a reader without its producer read values that were never written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.checker.history import RULES, History
from tests.checker.operations import Entry, encode, entries, history_from, operations

T = TypeVar("T")


def smallest(history: History, violation: str) -> History:
    """Return the smallest part of `history` that still has `violation`, one of its violations."""
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
    """Return a minimal list of items, in their order: none of them can be removed.

    Tries to remove halves, then quarters, and so on. If few items matter, each size takes few
    checks, and checks get shorter as fast as their number grows.
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
    """Return an entry with as few items as possible in one of its fields."""
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
