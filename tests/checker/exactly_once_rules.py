"""Rules of clients that copy exactly once, and of clients that number their atomic calls.

A copy is named `source:number@attempt`. Rules yield violations in words.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.checker.read_back import ReadBack
from tests.checker.transaction_rules import WRITER, Rule, TransactionHistory, name_of, ref_of


def there_is_one_copy_of_each_record_in_order(history: TransactionHistory) -> Iterator[str]:
    copies: Counter[str] = Counter()
    for (topic, partition), records in history.final.items():
        if topic != history.copies_to:
            continue
        last: dict[str, int] = {}
        for offset, value in records:
            original = value.partition("@")[0]
            copies[original] += 1
            source, _, number = original.partition(":")
            if not number.isdigit():
                continue
            if int(number) <= last.get(source, -1):
                yield f"{partition}/{offset}: {value!r} comes behind {last[source]}"
            last[source] = int(number)
    for original, count in copies.items():
        if count > 1:
            yield f"{original} was copied {count} times"
    originals = dict.fromkeys(value for values in history.source.values() for value in values)
    sources = {str(partition) for partition in history.source}
    for original in copies:
        if original not in originals:
            is_known = original.partition(":")[0] in sources
            source = "its source" if is_known else "any source: there is no such partition"
            yield f"{original} was copied, and is not in {source}"
    yield from _not_copied(history, [one for one in originals if one not in copies])


def _not_copied(history: TransactionHistory, missing: Sequence[str]) -> Iterator[str]:
    if not history.is_drained or not missing:
        return
    back = ReadBack(history.final)
    places = sorted(place for place in history.final if place[0] == history.copies_to)
    extents = ", ".join(back.extent(place) for place in places)
    yield from (f"{original} was not copied: {extents}" for original in missing)


def numbered_calls_are_in_order(history: TransactionHistory) -> Iterator[str]:
    for place, records in history.final.items():
        last: dict[str, tuple[int, int]] = {}
        for offset, value in records:
            name = name_of(value)
            if name.startswith(WRITER):
                writer, epoch, call = ref_of(name)
                if (epoch, call) < last.get(writer, (0, 0)):
                    yield f"{place}/{offset}: {name} comes behind {last[writer]}"
                last[writer] = epoch, call


def offsets_and_output_agree_at_every_moment(history: TransactionHistory) -> Iterator[str]:
    for moment in history.moments:
        if sum(moment.copied.values()) != moment.written:
            yield f"at {moment.at_s}: {moment.copied} are committed, {moment.written} are written"


def copied_offsets_never_go_back(history: TransactionHistory) -> Iterator[str]:
    last: dict[int, int] = {}
    for moment in history.moments:
        for partition, offset in moment.copied.items():
            if offset < last.get(partition, 0):
                yield f"at {moment.at_s}: {partition} went from {last[partition]} to {offset}"
            last[partition] = offset


def after_the_faults_all_is_copied(history: TransactionHistory) -> Iterator[str]:
    if history.is_drained is False:
        yield "not everything was copied"


def nobody_meets_other_errors(history: TransactionHistory) -> Iterator[str]:
    yield from history.errors


EXACTLY_ONCE_RULES: Sequence[Rule] = (
    there_is_one_copy_of_each_record_in_order,
    numbered_calls_are_in_order,
    offsets_and_output_agree_at_every_moment,
    copied_offsets_never_go_back,
    after_the_faults_all_is_copied,
    nobody_meets_other_errors,
)
