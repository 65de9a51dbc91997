"""Rules of the schema registry: ids, versions, levels, deletions and references."""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from tests.checker.schema_history import (
    DONE,
    Deleting,
    Numbered,
    Registering,
    SchemaHistory,
    SchemaLook,
    StoredSubject,
    context_of,
)

FRESH_S = 1.0
"""A list of versions may be as old as this."""

NUMBERS = ("int", "long", "float", "double")
"""Avro reads each of these as those after it."""

TEXTS = ("string", "bytes")
"""Avro reads each of these as the other."""


def the_same_schema_has_one_id(history: SchemaHistory) -> Iterator[str]:
    known: dict[tuple[str, str], int] = {}
    for context, schema_id, schema in _pairs(history):
        if known.setdefault((context, schema), schema_id) != schema_id:
            there = known[context, schema]
            yield f"{schema} in {context} has the ids {there} and {schema_id}"


def one_id_one_schema(history: SchemaHistory) -> Iterator[str]:
    known: dict[tuple[str, int], str] = {}
    for context, schema_id, schema in _pairs(history):
        if known.setdefault((context, schema_id), schema) != schema:
            there = known[context, schema_id]
            yield f"{schema_id} in {context} is {there} and {schema}"


def ids_are_dense(history: SchemaHistory) -> Iterator[str]:
    """All ids up to the last one are stored, and no other id was ever answered."""
    stored = defaultdict(list)
    for each in history.schemas:
        stored[each.context].append(each.schema_id)
    for context, last in history.last_ids.items():
        if sorted(stored[context]) != list(range(1, last + 1)):
            yield f"{context} has the ids {sorted(stored[context])}, and {last} is the last"
    for context, schema_id, schema in _pairs(history):
        last = history.last_ids.get(context, math.inf if not history.last_ids else 0)
        if not 1 <= schema_id <= last:
            yield f"{schema} in {context} was given {schema_id}, and {last} is the last"


def versions_have_no_gaps(history: SchemaHistory) -> Iterator[str]:
    """Each version up to the last one is there, or was there."""
    known: dict[str, set[int]] = defaultdict(set)
    doubtful = {each.subject for each in history.deleted if each.is_permanent and each.code is None}
    for call in history.registered:
        if call.version is not None:
            known[call.subject].add(call.version)
    for removal in history.deleted:
        known[removal.subject].update(removal.gone)
    for look in history.looks:
        known[look.subject].update(look.listed)
    for each in history.subjects:
        known[each.subject].update(one.version for one in each.versions)
    for subject, versions in known.items():
        missing = sorted(set(range(1, max(versions, default=0))) - versions)
        if missing and subject not in doubtful:
            yield f"{subject} has versions up to {max(versions)}, but nothing is known of {missing}"


def each_version_keeps_the_level(history: SchemaHistory) -> Iterator[str]:
    """Compares with what was there when the transaction of a version was made."""
    labels = {(context, schema_id): schema for context, schema_id, schema in _pairs(history)}
    for change in history.changes:
        context = context_of(change.subject)
        live = [each for each in change.was if not each.is_deleted]
        if not change.level.endswith("_TRANSITIVE"):
            live = live[-1:]
        for new in _added(change.was, change.became):
            for old in live:
                pair = [labels.get((context, each.schema_id)) for each in (new, old)]
                if None not in pair and not keeps(change.level, str(pair[0]), str(pair[1])):
                    yield (
                        f"{change.subject} got {pair[0]} as version {new.version} after {pair[1]},"
                        f" version {old.version}, at the level {change.level}"
                    )


def nothing_is_half_registered(history: SchemaHistory) -> Iterator[str]:
    schemas = {(each.context, each.schema_id): each for each in history.schemas}
    noted = {
        (each.subject, version, by, by_version)
        for each in history.subjects
        for version, by, by_version in each.referrers
    }
    used: dict[tuple[str, int], set[str]] = defaultdict(set)
    for subject in history.subjects:
        context = context_of(subject.subject)
        for version in subject.versions:
            used[context, version.schema_id].add(subject.subject)
            schema = schemas.get((context, version.schema_id))
            if schema is None:
                yield f"{subject.subject} has the version {version}, whose schema is not there"
                continue
            for to, number in schema.refers:
                if (to, number, subject.subject, version.version) not in noted:
                    yield f"{subject.subject} {version} refers to {to} {number}, which is not noted"
    for place, schema in schemas.items():
        if (schema.digest_id, schema.guid_id) != (schema.schema_id, schema.schema_id):
            yield f"{schema} is not found by its digest, or by its GUID"
        if set(schema.users) != used[place]:
            yield f"{schema} is a schema of {sorted(used[place])}"


def what_was_registered_is_found(history: SchemaHistory) -> Iterator[str]:
    """By every gateway, from the answer on, unless somebody may have deleted it since."""
    acked = _Acked(history.registered)
    removals = _removals(history, lambda each: each.code in (DONE, None))
    for look in (each for each in history.looks if each.code not in (DONE, None)):
        if look.asks == "id":
            place = context_of(look.subject), look.about
        elif look.asks in ("version", "schema"):
            place = look.subject, look.about
        else:
            continue
        call = acked.before(place, look.began_s)
        if call is not None and not (
            look.asks != "id" and _deleted_between(removals[call.subject], call, look.ended_s)
        ):
            yield f"{call} was not found by {look}"
    there = {
        each.subject: {one.version for one in each.versions if not one.is_deleted}
        for each in history.subjects
    }
    for call in history.registered if history.last_ids else ():
        if (
            call.code == DONE
            and call.version not in there.get(call.subject, ())
            and not _deleted_between(removals[call.subject], call, math.inf)
        ):
            yield f"{call} is not there in the end"


def what_was_deleted_is_not_listed(history: SchemaHistory) -> Iterator[str]:
    """A number may come back only after permanent deletions."""
    removed = _removals(history, lambda each: each.code == DONE)
    erased = _removals(history, lambda each: each.is_permanent and each.code in (DONE, None))
    for look in chain(history.looks, map(_as_look, history.subjects)):
        if look.asks not in ("version", "versions") or look.code != DONE:
            continue
        listed = set(look.listed) | ({look.version} if look.version else set())
        if any(each.began_s < look.ended_s for each in erased[look.subject]):
            continue
        for each in removed[look.subject]:
            back = sorted(listed & set(each.gone))
            if back and look.began_s >= each.ended_s + FRESH_S:
                yield f"{back} deleted by {each}, and listed by {look}"


def what_is_referred_to_is_not_deleted(history: SchemaHistory) -> Iterator[str]:
    for change in history.changes:
        for each in change.references:
            if each.state == "gone" or (each.state == "deleted" and not each.is_by_deleted):
                yield f"after {change.subject} changed at {change.at_s}: {each}"


def nothing_changes_while_it_is_read_only(history: SchemaHistory) -> Iterator[str]:
    for change in history.changes:
        if change.mode.startswith("READONLY"):
            yield f"{change.subject} in mode {change.mode} became {change.became}"


def refused_schemas_are_not_stored(history: SchemaHistory) -> Iterator[str]:
    refused: dict[tuple[str, str], bool] = {}
    for call in history.registered:
        place = context_of(call.subject), call.schema
        refused[place] = refused.get(place, True) and call.code not in (DONE, None)
    for each in history.schemas:
        if refused.get((each.context, each.schema), True):
            yield f"{each} was refused, or never sent"


def registry_clients_meet_no_other_errors(history: SchemaHistory) -> Iterator[str]:
    yield from history.errors


def keeps(level: str, new: str, old: str) -> bool:
    """Whether a new schema keeps the level beside an old one."""
    directions = level.removesuffix("_TRANSITIVE")
    if directions in ("BACKWARD", "FULL") and not _reads(new, old):
        return False
    return directions not in ("FORWARD", "FULL") or _reads(old, new)


def _reads(reader: str, writer: str) -> bool:
    to, of = reader.partition(".")[0], writer.partition(".")[0]
    if to in NUMBERS and of in NUMBERS:
        return NUMBERS.index(to) >= NUMBERS.index(of)
    return to == of or (to in TEXTS and of in TEXTS)


def _pairs(history: SchemaHistory) -> Iterator[tuple[str, int, str]]:
    """Yield context, id and schema, wherever they were told together."""
    for each in chain(history.registered, history.looks):
        if each.code == DONE and each.schema_id is not None and each.schema is not None:
            yield context_of(each.subject), each.schema_id, each.schema
    for stored in history.schemas:
        yield stored.context, stored.schema_id, stored.schema


def _added(was: Sequence[Numbered], became: Sequence[Numbered]) -> list[Numbered]:
    before = {each.version for each in was}
    return [each for each in became if each.version not in before]


class _Acked:
    """Answered registrations, by what they can be found by."""

    def __init__(self, registered: Sequence[Registering]) -> None:
        self._by_place: dict[tuple[str, str], list[Registering]] = defaultdict(list)
        done = [each for each in registered if each.code == DONE]
        for each in sorted(done, key=lambda each: each.ended_s):
            for place in (
                (context_of(each.subject), str(each.schema_id)),
                (each.subject, str(each.version)),
                (each.subject, each.schema),
            ):
                self._by_place[place].append(each)

    def before(self, place: tuple[str, str], at_s: float) -> Registering | None:
        """Return the last one that was answered before, if any."""
        found = self._by_place.get(place, [])
        number = bisect_left(found, at_s, key=lambda each: each.ended_s)
        return found[number - 1] if number else None


def _removals(
    history: SchemaHistory, is_meant: Callable[[Deleting], bool]
) -> Mapping[str, list[Deleting]]:
    found: dict[str, list[Deleting]] = defaultdict(list)
    for each in history.deleted:
        if is_meant(each):
            found[each.subject].append(each)
    return found


def _deleted_between(removals: Sequence[Deleting], call: Registering, until_s: float) -> bool:
    """Whether a deletion may have removed what a call registered."""
    return any(
        (each.code is None or each.ended_s >= call.began_s)
        and each.began_s <= until_s
        and each.version in (0, call.version)
        for each in removals
    )


def _as_look(stored: StoredSubject) -> SchemaLook:
    live = tuple(each.version for each in stored.versions if not each.is_deleted)
    end = math.inf
    return SchemaLook(0, "versions", stored.subject, "", end, end, DONE, listed=live)


SCHEMA_RULES: Sequence[Callable[[SchemaHistory], Iterator[str]]] = (
    the_same_schema_has_one_id,
    one_id_one_schema,
    ids_are_dense,
    versions_have_no_gaps,
    each_version_keeps_the_level,
    nothing_is_half_registered,
    what_was_registered_is_found,
    what_was_deleted_is_not_listed,
    what_is_referred_to_is_not_deleted,
    nothing_changes_while_it_is_read_only,
    refused_schemas_are_not_stored,
    registry_clients_meet_no_other_errors,
)
