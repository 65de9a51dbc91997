"""Deleting versions, subjects and contexts, and setting levels and modes.

Deleting is in two steps, as in Confluent's: a version that was deleted once is no longer found, but
can still be read by those who ask for it; then it can be deleted permanently. Its schema stays
readable by its id, because records that carry the id may exist.
"""

from collections.abc import Awaitable, Callable, Sequence
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
from service.registry.names import SubjectName, parse_subject
from service.registry.reading import SchemaReader
from service.registry.registering import READ_ONLY
from storage import keys
from storage.cas import Again, retry
from storage.stores.metadata import TRANSACT_OPS_MAX, Check, Delete, Op, Put, Versioned, pages

T = TypeVar("T")


class Changes:
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
            item, head = await self._head(subject)
            if head is None or not head.versions:
                if is_in_doubt and chosen is not None:
                    return chosen
                raise no_subject(str(subject))
            if chosen is None:
                if not head.live() and not permanent:
                    raise no_subject(str(subject))
                live = head.live()
                chosen = (live or head.versions)[-1].version
            found = head.find(chosen)
            done = found is None if permanent else found is not None and found.is_deleted
            if done and is_in_doubt:
                return chosen
            if found is None:
                raise no_version(chosen)
            if permanent and not found.is_deleted:
                raise version_not_deleted(str(subject), chosen)
            if not permanent and found.is_deleted:
                raise version_deleted(str(subject), chosen)
            await self._delete(item, head, [found], permanent=permanent)
            return chosen

        await self._check_mode(subject)
        return await self._changed(subject, attempt)

    async def delete_subject(self, subject: SubjectName, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject; return their numbers."""
        seen: list[int] = []

        async def attempt(is_in_doubt: bool) -> list[int] | Again:
            item, head = await self._head(subject)
            live = [] if head is None else head.live()
            if is_in_doubt and seen and not live and (head is None or not permanent):
                return seen
            if head is None or not head.versions:
                raise no_subject(str(subject))
            if permanent and live:
                raise subject_not_deleted(str(subject))
            if not permanent and not live:
                raise subject_deleted(str(subject))
            doomed = list(head.versions) if permanent else live
            seen[:] = [each.version for each in doomed]
            if permanent:
                await self._delete_permanently(subject, doomed)
            else:
                await self._delete(item, head, doomed, permanent=False)
            return seen

        await self._check_mode(subject)
        return await self._changed(subject, attempt)

    async def _delete_permanently(
        self, subject: SubjectName, doomed: Sequence[SubjectVersion]
    ) -> None:
        """Delete versions, the newest first, in as many transactions as their references need."""
        some: list[SubjectVersion] = []
        ops = 1
        for each in reversed(doomed):
            schema = await self._reader.schema(subject.context, each.schema_id)
            needed = 1 + len(schema.references)
            if ops + needed > TRANSACT_OPS_MAX:
                await self._delete(*await self._head(subject), some, permanent=True)
                some, ops = [], 1
            some.append(each)
            ops += needed
        await self._delete(*await self._head(subject), some, permanent=True)

    async def _delete(
        self,
        item: Versioned | None,
        head: SubjectHead | None,
        doomed: Sequence[SubjectVersion],
        *,
        permanent: bool,
    ) -> None:
        if item is None or head is None:
            return
        subject = SubjectName(head.context, head.name)
        numbers = {each.version for each in doomed}
        for each in doomed:
            await self._check_referrers(subject, each.version, permanent, numbers)
        if permanent:
            left = tuple(each for each in head.versions if each.version not in numbers)
            ops = await self._permanent_ops(subject, doomed, left)
        else:
            left = tuple(
                replace(each, is_deleted=each.is_deleted or each.version in numbers)
                for each in head.versions
            )
            ops = []
        key = keys.subject(subject.context, subject.name)
        changed = replace(head, versions=left)
        if left:
            ops.append(Put(key, items.encode(changed), item.version))
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
            _, head = await self._head(by)
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
    ) -> SubjectRules:
        """Change level or mode of a subject or, without a name, of its context; return the old."""

        async def attempt(_: bool) -> SubjectRules | Again:
            context_key = keys.schema_context(subject.context)
            context_item = await self._metadata.get(context_key)
            context = _context(subject.context, context_item)
            expected = None if context_item is None else context_item.version
            if not subject.name:
                if must_be_empty and await self._has_versions(subject.context):
                    raise not_permitted("Cannot import since found existing subjects")
                changed = replace(context, rules=change(context.rules))
                await self._metadata.transact([Put(context_key, items.encode(changed), expected)])
                return context.rules
            item, found = await self._head(subject)
            head = found or SubjectHead(subject.context, subject.name)
            if must_be_empty and head.live():
                raise not_permitted("Cannot import since found existing subjects")
            value = items.encode(replace(head, rules=change(head.rules)))
            key = keys.subject(subject.context, subject.name)
            ops: list[Op] = [Put(key, value, None if item is None else item.version)]
            if context_item is None:
                # Subjects are listed context by context.
                ops.append(Put(context_key, items.encode(context), None))
            else:
                ops.append(Check(context_key, expected))
            await self._metadata.transact(ops)
            return head.rules

        return await self._changed(subject, attempt)

    async def _has_versions(self, context: str) -> bool:
        async for page in pages(self._metadata, keys.subjects_of(context)):
            for _, item in page:
                if items.decode_subject(item.value).live():
                    return True
        return False

    async def delete_level(self, subject: SubjectName) -> SubjectRules:
        """Remove the level of a subject or a context; return what was there."""

        def change(rules: SubjectRules) -> SubjectRules:
            if subject.name and rules.level is None and rules.normalize is None:
                raise no_level(str(subject))
            return replace(rules, level=None, normalize=None)

        return await self.set_rules(subject, change)

    async def delete_mode(self, subject: SubjectName) -> SubjectRules:
        """Remove the mode of a subject or a context; return what was there."""

        def change(rules: SubjectRules) -> SubjectRules:
            if subject.name and rules.mode is None:
                raise no_mode(str(subject))
            return replace(rules, mode=None)

        return await self.set_rules(subject, change)

    async def delete_context(self, name: str) -> None:
        """Delete a context that has no subjects; its ids are not given again."""

        async def attempt(_: bool) -> Again | None:
            key = keys.schema_context(name)
            item = await self._metadata.get(key)
            if item is None:
                return None
            if await self._metadata.list(keys.subjects_of(name), limit=1):
                raise context_not_empty(name)
            context = replace(_context(name, item), rules=SubjectRules())
            if context.last_id:
                await self._metadata.transact([Put(key, items.encode(context), item.version)])
            else:
                await self._metadata.transact([Delete(key, item.version)])
            return None

        await retry(f"context {name}", attempt, self._world.patience)
        self._reader.forget(keys.schema_context(name))

    async def _head(self, subject: SubjectName) -> tuple[Versioned | None, SubjectHead | None]:
        item = await self._metadata.get(keys.subject(subject.context, subject.name))
        return item, None if item is None else items.decode_subject(item.value)

    async def _check_mode(self, subject: SubjectName) -> None:
        mode = await self._reader.mode(subject, await self._reader.head(subject))
        if mode in READ_ONLY:
            raise not_permitted(f"Subject {subject} is in {mode} mode")

    async def _changed(
        self, subject: SubjectName, attempt: Callable[[bool], Awaitable[T | Again]]
    ) -> T:
        try:
            return await retry(f"subject {subject}", attempt, self._world.patience)
        finally:
            self._reader.forget(
                keys.subject(subject.context, subject.name), keys.schema_context(subject.context)
            )


def _context(name: str, item: Versioned | None) -> SchemaContext:
    return SchemaContext(name) if item is None else items.decode_context(item.value)
