"""Records against the schemas that their topic asks for, before any of them is written.

The id that a key or a value carries must be registered under the subject that the topic's rules
name. That is decided once for each id that occurs, not for each record, from what this gateway
knows of the subject; what it does not know, it reads again before it refuses, because another
gateway may have registered it a moment ago. Only a rule for `full` looks at data, and only it needs
the libraries of schemas.

A version that was deleted, in whichever way, counts no more. Null always passes.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from service.process.limits.heavy_work import HeavyWork
from service.registry.edge.codecs import SchemaCodecs
from service.registry.edge.validation.columns import ArrowColumns, columns_of
from service.registry.edge.validation.fitting import COST, misfits
from service.registry.edge.validation.marks import Mark, Marks, marks_of
from service.registry.edge.validation.record_names import record_names
from service.registry.errors import RegistryError
from service.registry.items import SubjectHead
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.registry.reading import Schema, SchemaReader
from storage import keys
from storage.errors import RefusedRecord, SchemaMismatch
from storage.lanes.building import Records
from storage.schemas.refused import RefusedValue
from storage.topics.schema_rules import SchemaRule, Strategy
from storage.topics.topics import Topic

NAMED_MAX: Final = 10
"""Maximum number of records that an error names."""

KNOWN_MAX: Final = 1000
"""Maximum number of subjects and of GUIDs that are remembered."""

SCHEMAS_MAX: Final = 1000
"""Maximum number of schemas in one request, for keys and for values."""

MARK_BYTES: Final = 16
"""To find the mark of a value takes as long as to decode so many bytes."""


class _Refused(Exception):
    """Why no value with this mark is accepted."""


class Validation:
    """What checks records, on one gateway."""

    def __init__(self, reader: SchemaReader, codecs: SchemaCodecs, heavy_work: HeavyWork) -> None:
        self._reader = reader
        self._codecs = codecs
        self._heavy_work = heavy_work
        self._live: dict[SubjectName, tuple[SubjectHead, frozenset[int]]] = {}
        self._guids: dict[tuple[str, str], int] = {}
        self._found: dict[tuple[str, str, int], SubjectName] = {}
        """By what stands before the name of a record, context and id: a subject that has it."""

    async def check(
        self, topic: Topic, records: Records, rows: Sequence[int] | None = None
    ) -> None:
        """Raise `SchemaMismatch` if a record lacks what the rules of the topic ask for.

        `rows` are the places of the records in their request; None: all of it, in order.
        """
        columns = await columns_of(records, self._heavy_work)
        refused: list[RefusedRecord] = []
        for rule in topic.schema_rules:
            refused += await self._refused(topic, rule, columns)
        if refused:
            placed = sorted(refused, key=lambda each: each.index)[:NAMED_MAX]
            if rows is not None:
                placed = [
                    RefusedRecord(rows[each.index], each.part, each.path, each.reason)
                    for each in placed
                ]
            raise SchemaMismatch(topic.name, placed)

    async def _refused(
        self, topic: Topic, rule: SchemaRule, columns: ArrowColumns
    ) -> list[RefusedRecord]:
        """Return refused records of the first schema that has any."""
        marks = await self._heavy_work.convert(
            MARK_BYTES * columns.count,
            lambda: marks_of(columns.places(rule.part), columns.headers, rule.header),
        )
        for place, number in enumerate(marks.order):
            mark = marks.distinct[number]
            try:
                if place == SCHEMAS_MAX:
                    raise _Refused(f"the records before have {SCHEMAS_MAX:,} schemas; send fewer")
                context, schema_id = await self._allowed(topic, rule, mark)
                if rule.checks_data:
                    schema = await self._reader.schema(context, schema_id)
                    refused = await self._unfit(rule, schema, columns, marks, number)
                    if refused:
                        return refused
            except (_Refused, RegistryError) as error:
                rows = marks.first_rows(number, NAMED_MAX)
                return [RefusedRecord(row, rule.part, "", str(error)) for row in rows]
        return []

    async def _unfit(
        self, rule: SchemaRule, schema: Schema, columns: ArrowColumns, marks: Marks, number: int
    ) -> list[RefusedRecord]:
        """Return the records with this mark whose data does not fit the schema."""
        found = await self._codecs.found(schema)
        rows = await self._heavy_work.convert(
            MARK_BYTES * columns.count, lambda: marks.rows(number)
        )

        def work() -> list[RefusedValue]:
            values = columns.values(rule.part)
            if len(rows) < len(values):
                values = values.take(pa.array(rows))
            return misfits(found, values, marks.distinct[number])

        refused = await self._heavy_work.convert(COST * marks.size_bytes(rows), work)
        return [
            RefusedRecord(int(rows[each.index]), rule.part, each.path, each.reason)
            for each in refused[:NAMED_MAX]
        ]

    # Which schema

    async def _allowed(self, topic: Topic, rule: SchemaRule, mark: Mark) -> tuple[str, int]:
        """Return the context and the id of what values with this mark must fit.

        Raises `_Refused` if the rule allows no such value.
        """
        if mark.fault:
            raise _Refused(mark.fault)
        try:
            if mark.schema is None:
                return await self._latest(topic, rule)
            context = parse_subject(rule.subject).context if rule.subject else DEFAULT
            schema_id = mark.schema
            if isinstance(schema_id, str):
                schema_id = await self._id(context, schema_id)
            await self._require(topic, rule, context, schema_id)
        except RegistryError as error:
            raise _Refused(str(error)) from None
        return context, schema_id

    async def _latest(self, topic: Topic, rule: SchemaRule) -> tuple[str, int]:
        """Return the schema of values that name none."""
        subject = _only_subject(topic, rule)
        if not rule.checks_data or subject is None:
            raise _Refused(
                f"it has no schema id: neither 00 and four bytes in front of it, nor the header"
                f" {rule.header}"
            )
        head = await self._reader.head(subject)
        live = [] if head is None else head.live()
        if not live:
            self._reader.forget(keys.subject(subject.context, subject.name))
            head = await self._reader.head(subject)
            live = [] if head is None else head.live()
        if not live:
            raise _Refused(f"subject {str(subject)!r} has no schema")
        return subject.context, live[-1].schema_id

    async def _require(self, topic: Topic, rule: SchemaRule, context: str, schema_id: int) -> None:
        """Raise `_Refused` unless the schema is one that the rule allows."""
        only = _only_subject(topic, rule)
        if only is not None:
            if not await self._has(only, schema_id):
                raise _Refused(f"subject {str(only)!r} has no schema with id {schema_id}")
            return
        prefix = f"{topic.name}-" if rule.strategy is Strategy.TOPIC_RECORD else ""
        key = prefix, context, schema_id
        found = self._found.get(key)
        if found is not None and schema_id in await self._live_ids(found):
            return
        schema = await self._reader.schema(context, schema_id)
        names = [prefix + name for name in record_names(schema.type, schema.text)]
        if not names:
            raise _Refused(f"schema {schema_id} has no name, which its subject would have")
        if len(names) > 1:
            # The messages of a file: few of them have a subject.
            users = set(await self._reader.users(context, schema_id))
            names = [name for name in names if name in users] or names[:1]
        for subject in [parse_subject(name, inside=context) for name in names]:
            if await self._has(subject, schema_id):
                if len(self._found) >= KNOWN_MAX:
                    self._found.clear()
                self._found[key] = subject
                return
        raise _Refused(f"subject {names[0]!r} has no schema with id {schema_id}")

    async def _has(self, subject: SubjectName, schema_id: int) -> bool:
        """Whether a version of the subject has the schema."""
        if schema_id in await self._live_ids(subject):
            return True
        # Perhaps another gateway has registered it within the last second.
        self._reader.forget(keys.subject(subject.context, subject.name))
        return schema_id in await self._live_ids(subject)

    async def _live_ids(self, subject: SubjectName) -> frozenset[int]:
        head = await self._reader.head(subject)
        if head is None:
            return frozenset()
        kept = self._live.get(subject)
        if kept is None or kept[0] is not head:
            kept = head, frozenset(each.schema_id for each in head.live())
            if len(self._live) >= KNOWN_MAX:
                self._live.clear()
            self._live[subject] = kept
        return kept[1]

    async def _id(self, context: str, guid: str) -> int:
        known = self._guids.get((context, guid))
        if known is None:
            found = dict(await self._reader.ids_of_guid(guid))
            if context not in found:
                raise _Refused(f"there is no schema with GUID {guid}")
            if len(self._guids) >= KNOWN_MAX:
                self._guids.clear()
            known = self._guids[context, guid] = found[context]
        return known


def _only_subject(topic: Topic, rule: SchemaRule) -> SubjectName | None:
    """Return the subject of all schemas; None: each has one that its name says."""
    if rule.subject:
        return parse_subject(rule.subject)
    if rule.strategy is Strategy.TOPIC:
        return parse_subject(f"{topic.name}-{rule.part}")
    return None
