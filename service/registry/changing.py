"""Deleting versions, subjects and contexts, and setting levels and modes.

Deleting is in two steps, as in Confluent's: a version that was deleted once is no longer found, but
can still be read by those who ask for it; then it can be deleted permanently. Its schema stays
readable by its id, because records that carry the id may exist.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from service.registry import items
from service.registry.errors import (
    context_not_empty,
    no_level,
    no_mode,
    no_subject,
    no_version,
    not_permitted,
    referenced,
    subject_deleted,
    subject_not_deleted,
    version_deleted,
    version_not_deleted,
)
from service.registry.items import (
    SchemaContext,
    SchemaUser,
    SubjectHead,
    SubjectRules,
    SubjectVersion,
)
from service.registry.names import DEFAULT, SubjectName, parse_subject
from service.registry.reading import DEFAULT_MODE, READ_ONLY_EVERYWHERE, SchemaReader
from service.registry.registering import READ_ONLY
from storage import keys
from storage.cas import Again, retry
from storage.errors import MetadataConflict
from storage.stores.metadata import TRANSACT_OPS_MAX, Check, Delete, Op, Put, Versioned, pages

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Before:
    """What a change relies on."""

    subject: SubjectName
    item: Versioned | None
    head: SubjectHead | None
    context: SchemaContext
    default: SchemaContext
    checks: tuple[Check, ...]
    """That the rules of the contexts are still the same."""

    @property
    def live(self) -> list[SubjectVersion]:
        return [] if self.head is None else self.head.live()

    @property
    def rules(self) -> SubjectRules:
        """Return what is set for the subject or, without a name, for the context."""
        if not self.subject.name:
            return self.context.rules
        return SubjectRules() if self.head is None else self.head.rules

    def check_mode(self) -> None:
        """Raise if the subject is read-only."""
        around = [self.context.rules.mode, self.default.rules.mode]
        own = [] if self.head is None else [self.head.rules.mode]
        mode = next((each for each in (*own, *around) if each is not None), DEFAULT_MODE)
        if self.default.rules.mode == READ_ONLY_EVERYWHERE:
            mode = READ_ONLY_EVERYWHERE
        if mode in READ_ONLY:
            raise not_permitted(f"Subject {self.subject} is in {mode} mode")


class Changes:
    """Every change looks first whether an earlier attempt was applied whose reply was lost."""

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._metadata = reader.metadata
        self._world = reader.world

    async def delete_version(
        self, subject: SubjectName, version: int | None, *, permanent: bool
    ) -> int:
        """Delete a version, None: the latest; return its number."""
        chosen = version

        async def attempt(is_in_doubt: bool) -> int | Again:
            nonlocal chosen
            before = await self._before(subject)
            head = before.head
            if is_in_doubt and chosen is not None:
                found = None if head is None else head.find(chosen)
                if found is None or (found.is_deleted and not permanent):
                    return chosen
            before.check_mode()
            if head is None or not head.versions:
                raise no_subject(str(subject))
            if chosen is None:
                live = head.live()
                if not live and not permanent:
                    raise no_subject(str(subject))
                chosen = (live or head.versions)[-1].version
            found = head.find(chosen)
            if found is None:
                raise no_version(chosen)
            if permanent and not found.is_deleted:
                raise version_not_deleted(str(subject), chosen)
            if not permanent and found.is_deleted:
                raise version_deleted(str(subject), chosen)
            await self._delete(before, [found], permanent=permanent)
            return chosen

        return await self._changed(subject, attempt)

    async def delete_subject(self, subject: SubjectName, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject, and what is set for it; return their numbers."""
        seen: set[int] = set()

        async def attempt(is_in_doubt: bool) -> list[int] | Again:
            before = await self._before(subject)
            versions = () if before.head is None else before.head.versions
            if is_in_doubt and not any(
                each.version in seen and each.is_deleted is permanent for each in versions
            ):
                return sorted(seen)
            before.check_mode()
            if not versions:
                raise no_subject(str(subject))
            if permanent and before.live:
                raise subject_not_deleted(str(subject))
            if not permanent and not before.live:
                raise subject_deleted(str(subject))
            if permanent:
                # An earlier attempt may have removed some, if there are too many for one.
                seen.update(each.version for each in versions)
                await self._delete_permanently(before, versions)
            else:
                seen.clear()
                seen.update(each.version for each in before.live)
                await self._delete(before, before.live, permanent=False, with_rules=True)
            return sorted(seen)

        return await self._changed(subject, attempt)

    async def _delete_permanently(self, before: _Before, doomed: Sequence[SubjectVersion]) -> None:
        """Delete versions, the newest first, in as many transactions as their references need."""
        subject = before.subject
        some: list[SubjectVersion] = []
        ops = most = 1 + len(before.checks)
        for each in reversed(doomed):
            schema = await self._reader.schema(subject.context, each.schema_id)
            needed = 1 + len(schema.references)
            if ops + needed > TRANSACT_OPS_MAX:
                await self._delete(before, some, permanent=True)
                before = await self._before(subject)
                some, ops = [], most
            some.append(each)
            ops += needed
        await self._delete(before, some, permanent=True)

    async def _delete(
        self,
        before: _Before,
        doomed: Sequence[SubjectVersion],
        *,
        permanent: bool,
        with_rules: bool = False,
    ) -> None:
        item, head, subject = before.item, before.head, before.subject
        if item is None or head is None or any(head.find(e.version) != e for e in doomed):
            # Others have deleted them meanwhile, and perhaps the numbers were given again.
            raise MetadataConflict({})
        numbers = {each.version for each in doomed}
        for each in doomed:
            await self._check_referrers(subject, each.version, permanent, numbers)
        changed = replace(head, rules=SubjectRules()) if with_rules else head
        ops: list[Op] = list(before.checks)
        if permanent:
            left = tuple(each for each in head.versions if each.version not in numbers)
            ops += await self._permanent_ops(subject, doomed, left)
        else:
            left = tuple(
                replace(each, is_deleted=each.is_deleted or each.version in numbers)
                for each in head.versions
            )
        key = keys.subject(subject.context, subject.name)
        if left:
            ops.append(Put(key, items.encode(replace(changed, versions=left)), item.version))
        else:
            ops.append(Delete(key, item.version))
        await self._metadata.transact(ops)

    async def _check_referrers(
        self, subject: SubjectName, version: int, permanent: bool, doomed: set[int]
    ) -> None:
        """Raise 42206 if a version refers to this one: any, or for a first deletion, a live one."""
        for user in await self.referrers(subject, version):
            by = SubjectName(user.context, user.subject)
            if by == subject and user.version in doomed:
                continue
            head = await self._head(by)
            found = None if head is None else head.find(user.version)
            if found is not None and (permanent or not found.is_deleted):
                raise referenced(str(subject), version)

    async def referrers(self, subject: SubjectName, version: int) -> list[SchemaUser]:
        """Return the versions that refer to this one, deleted ones included."""
        prefix = keys.schema_referrers(subject.context, subject.name, version)
        return [
            items.decode_user(item.value)
            async for page in pages(self._metadata, prefix)
            for _, item in page
        ]

    async def _permanent_ops(
        self,
        subject: SubjectName,
        doomed: Sequence[SubjectVersion],
        left: Sequence[SubjectVersion],
    ) -> list[Op]:
        """Return what removes the references of versions, and the uses of their schemas."""
        wanted: set[str] = set()
        for each in doomed:
            schema = await self._reader.schema(subject.context, each.schema_id)
            for reference in schema.references:
                target = parse_subject(reference.subject, inside=subject.context)
                wanted.add(
                    keys.schema_referrer(
                        target.context,
                        target.name,
                        reference.version,
                        f":{subject.context}:{subject.name}",
                        each.version,
                    )
                )
            if all(other.schema_id != each.schema_id for other in left):
                wanted.add(keys.schema_use(subject.context, each.schema_id, subject.name))
        found = await self._metadata.get_many(sorted(wanted)) if wanted else {}
        return [Delete(key, item.version) for key, item in found.items()]

    async def set_rules(
        self,
        subject: SubjectName,
        change: Callable[[SubjectRules], SubjectRules],
        *,
        must_be_empty: bool = False,
        must_be_writable: bool = False,
    ) -> SubjectRules:
        """Change level or mode of a subject or, without a name, of its context; return the old."""
        tried: list[tuple[SubjectRules, SubjectRules]] = []

        async def attempt(is_in_doubt: bool) -> SubjectRules | Again:
            before = await self._before(subject)
            old = before.rules
            if is_in_doubt and tried and old == tried[-1][1]:
                return tried[-1][0]
            if must_be_writable:
                before.check_mode()
            if must_be_empty and (
                before.live if subject.name else await self._has_versions(subject.context)
            ):
                raise not_permitted("Cannot import since found existing subjects")
            new = change(old)
            tried.append((old, new))
            if ops := _rules_ops(before, new):
                await self._metadata.transact(ops)
            return old

        return await self._changed(subject, attempt)

    async def _has_versions(self, context: str) -> bool:
        async for page in pages(self._metadata, keys.subjects_of(context)):
            for _, item in page:
                if items.decode_subject(item.value).live():
                    return True
        return False

    async def delete_level(self, subject: SubjectName) -> SubjectRules:
        """Remove level, alias and additions of a subject or context; return what was there."""

        def change(rules: SubjectRules) -> SubjectRules:
            left = SubjectRules(mode=rules.mode)
            if subject.name and rules == left:
                raise no_level(str(subject))
            return left

        return await self.set_rules(subject, change, must_be_writable=True)

    async def delete_mode(self, subject: SubjectName) -> SubjectRules:
        """Remove the mode of a subject or a context; return what was there."""

        def change(rules: SubjectRules) -> SubjectRules:
            if subject.name and rules.mode is None:
                raise no_mode(str(subject))
            return replace(rules, mode=None)

        return await self.set_rules(subject, change)

    async def delete_modes_within(self, context: str) -> None:
        """Remove the modes of all subjects of a context; if it fails halfway, do it again."""
        async for page in pages(self._metadata, keys.subjects_of(context)):
            for _, item in page:
                head = items.decode_subject(item.value)
                if head.rules.mode is not None:
                    subject = SubjectName(context, head.name)
                    await self.set_rules(subject, lambda rules: replace(rules, mode=None))

    async def delete_context(self, name: str) -> None:
        """Delete a context that has no versions; its ids are not given again."""

        async def attempt(_: bool) -> Again | None:
            key = keys.schema_context(name)
            item = await self._metadata.get(key)
            if item is None:
                return None
            # Subjects without versions are those for which something is set.
            heads = await self._metadata.list(keys.subjects_of(name), limit=TRANSACT_OPS_MAX - 1)
            if any(items.decode_subject(head.value).versions for _, head in heads):
                raise context_not_empty(name)
            ops: list[Op] = [Delete(key, head.version) for key, head in heads]
            context = replace(_context(name, item), rules=SubjectRules())
            if context.last_id or len(ops) == TRANSACT_OPS_MAX - 1:
                ops.append(Put(key, items.encode(context), item.version))
            else:
                ops.append(Delete(key, item.version))
            await self._metadata.transact(ops)
            return Again() if len(ops) == TRANSACT_OPS_MAX else None

        await retry(f"context {name}", attempt, self._world.patience)
        self._reader.forget(keys.schema_context(name))

    async def _before(self, subject: SubjectName) -> _Before:
        key = keys.subject(subject.context, subject.name) if subject.name else None
        contexts = [keys.schema_context(each) for each in (subject.context, DEFAULT)]
        wanted = {*contexts, key} - {None}
        found = await self._metadata.get_many(sorted(each for each in wanted if each is not None))
        item = None if key is None else found.get(key)
        return _Before(
            subject,
            item,
            None if item is None else items.decode_subject(item.value),
            _context(subject.context, found.get(contexts[0])),
            _context(DEFAULT, found.get(contexts[1])),
            tuple(
                Check(each, found[each].version if each in found else None)
                for each in dict.fromkeys(contexts)
            ),
        )

    async def _head(self, subject: SubjectName) -> SubjectHead | None:
        item = await self._metadata.get(keys.subject(subject.context, subject.name))
        return None if item is None else items.decode_subject(item.value)

    async def _changed(
        self, subject: SubjectName, attempt: Callable[[bool], Awaitable[T | Again]]
    ) -> T:
        try:
            return await retry(f"subject {subject}", attempt, self._world.patience)
        finally:
            self._reader.forget(
                keys.subject(subject.context, subject.name), keys.schema_context(subject.context)
            )


def _rules_ops(before: _Before, rules: SubjectRules) -> list[Op]:
    """Return what sets the rules of a subject or, without a name, of its context."""
    [own, *others] = before.checks
    context = before.context if before.subject.name else replace(before.context, rules=rules)
    # Subjects are listed context by context, so there must be one.
    is_put = not before.subject.name or own.expected is None
    ops: list[Op] = [Put(own.key, items.encode(context), own.expected) if is_put else own, *others]
    if not before.subject.name:
        return ops
    key = keys.subject(before.subject.context, before.subject.name)
    expected = None if before.item is None else before.item.version
    head = before.head or SubjectHead(before.subject.context, before.subject.name)
    if head.versions or rules != SubjectRules():
        return [*ops, Put(key, items.encode(replace(head, rules=rules)), expected)]
    return [] if expected is None else [*ops, Delete(key, expected)]


def _context(name: str, item: Versioned | None) -> SchemaContext:
    return SchemaContext(name) if item is None else items.decode_context(item.value)
