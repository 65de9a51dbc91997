"""What the table of the registry holds: after each of its transactions, and in the end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from service.registry import items
from service.registry.items import SubjectHead
from service.registry.names import SubjectName, parse_subject
from storage import keys
from tests.checker.schema_history import (
    LastId,
    Numbered,
    Referring,
    SchemaHistory,
    StoredSchema,
    StoredSubject,
    SubjectChange,
)
from tests.simulation.cloud import WatchedMetadata
from tests.simulation.schemas.labels import label_of

_LEVEL: Final = "BACKWARD"
_MODE: Final = "READWRITE"


class SchemaWatch:
    def __init__(
        self, metadata: WatchedMetadata, history: SchemaHistory, now_s: Callable[[], float]
    ) -> None:
        self._metadata = metadata
        self._history = history
        self._now_s = now_s
        self._refers: dict[tuple[str, int], list[tuple[str, int]]] = {}
        self._heads: dict[str, SubjectHead] = {}
        metadata.watch_collection[keys.SUBJECTS] = self._see

    def _see(self, key: str, before: bytes | None, after: bytes | None) -> None:
        """Record a change of a subject, immediately after its transaction."""
        was = None if before is None else items.decode_subject(before)
        became = None if after is None else items.decode_subject(after)
        if became is None:
            self._heads.pop(key, None)
        else:
            self._heads[key] = became
        head = became or was
        assert head is not None
        if _versions(was) == _versions(became):
            return
        rules = [head.rules, self._rules(head.context), self._rules(".")]
        subject = name_of(head)
        self._history.changes.append(
            SubjectChange(
                self._now_s(),
                subject,
                _versions(was),
                _versions(became),
                next((each.level for each in rules if each.level), _LEVEL),
                next((each.mode for each in rules if each.mode), _MODE),
                tuple(each for each in self._references() if subject in (each.by, each.to)),
            )
        )

    def _rules(self, context: str) -> items.SubjectRules:
        item = self._metadata.now(keys.schema_context(context))
        return items.SubjectRules() if item is None else items.decode_context(item).rules

    def _references(self) -> Iterator[Referring]:
        states = {
            (name_of(head), each.version): "deleted" if each.is_deleted else "live"
            for head in self._heads.values()
            for each in head.versions
        }
        for head in self._heads.values():
            for each in head.versions:
                for to, number in self._references_of(head.context, each.schema_id):
                    state = states.get((to, number), "gone")
                    by = name_of(head)
                    yield Referring(by, each.version, each.is_deleted, to, number, state)

    def _references_of(self, context: str, schema_id: int) -> list[tuple[str, int]]:
        place = context, schema_id
        if place not in self._refers:
            item = self._metadata.now(keys.schema(context, schema_id))
            stored = [] if item is None else items.decode_schema(item).references
            self._refers[place] = [
                (str(parse_subject(each.subject, inside=context)), each.version) for each in stored
            ]
        return self._refers[place]

    async def read_everything(self) -> None:
        """Record what is stored in the end."""
        for _, item in await self._metadata.everything(keys.SCHEMA_CONTEXTS):
            context = items.decode_context(item.value)
            last = LastId(context.name, context.last_id)
            self._history.last_ids[last.context] = last.number
            for number in range(1, last.number + 2):
                self._read_schema(context.name, number)
        for key, head in sorted(self._heads.items()):
            found = await self._metadata.everything(_referrers_prefix(head))
            noted = []
            for each, item in found:
                user = items.decode_user(item.value)
                version = int(each.rpartition("/")[2].partition(".")[0])
                by = str(SubjectName(user.context, user.subject))
                noted.append((version, by, user.version))
            assert self._metadata.now(key) is not None
            self._history.subjects.append(
                StoredSubject(name_of(head), _versions(head), tuple(noted))
            )

    def _read_schema(self, context: str, schema_id: int) -> None:
        item = self._metadata.now(keys.schema(context, schema_id))
        if item is None:
            return
        stored = items.decode_schema(item)
        digests = self._ids(f"schema-digest/{context}/")
        guids = self._ids(keys.schema_guids(stored.guid))
        users = [
            items.decode_user(value).subject
            for key, value in self._metadata.beginning(keys.schema_uses(context, schema_id))
        ]
        self._history.schemas.append(
            StoredSchema(
                context,
                schema_id,
                label_of(items.inflated([stored.text])),
                schema_id if list(digests.values()).count(schema_id) == 1 else None,
                next((number for key, number in guids.items() if key.endswith(context)), None),
                tuple(sorted(str(SubjectName(context, each)) for each in users)),
                tuple(self._references_of(context, schema_id)),
            )
        )

    def _ids(self, prefix: str) -> Mapping[str, int]:
        found = self._metadata.beginning(prefix)
        return {key: items.decode_id(value).schema_id for key, value in found}


def name_of(head: SubjectHead) -> str:
    return str(SubjectName(head.context, head.name))


def _versions(head: SubjectHead | None) -> tuple[Numbered, ...]:
    versions = () if head is None else head.versions
    return tuple(Numbered(each.version, each.schema_id, each.is_deleted) for each in versions)


def _referrers_prefix(head: SubjectHead) -> str:
    return keys.schema_referrers(head.context, head.name, 0).rpartition("/")[0] + "/"
