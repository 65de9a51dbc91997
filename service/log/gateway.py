"""The gateway without HTTP: its operations, in terms of the log.

Routes translate requests into these calls and results into responses. Everything a call needs
is either in the stores or in its arguments; what the process caches (heads, topics, slices)
only saves reads and may be lost at any moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import pyarrow as pa

from service.log.batcher import Batcher, BatchLimits
from service.log.fetch_results import FetchResult, Place, Position, Wait, Watch
from service.log.kafka_batches import as_stored, is_kept, kafka_form
from service.log.lane_buffers import LateCheck
from service.log.locating import Located, locate
from service.log.numbering import Numbered, claims_of
from service.log.partition_info import PartitionInfo, check_width, partition_info
from service.log.questions import READ_VIEW_AGE_MAX_S, Question, Questions
from service.log.rereading import reread
from service.log.waiting import LongPoll
from service.process.limits.admission import Admission
from service.process.limits.heavy_work import HeavyWork
from service.process.limits.outgoing import RequestShares, Shares
from service.process.stores import open_keyring
from service.settings import Settings
from service.world.clock import World
from storage.crypto.envelope import DataKey
from storage.errors import (
    HeadGone,
    HeadMissing,
    InvalidRecord,
    InvalidRequest,
    UnknownTopicOrPartition,
)
from storage.formats.kafka.batches import Batches
from storage.formats.partitioner import Keeper, Spreader, assign
from storage.formats.partitions import LanePartition, PartitionNumber
from storage.formats.records import RECORD_SCHEMA
from storage.formats.slices import Sent
from storage.lanes.atomic import AtomicCommits
from storage.lanes.building import Records, size_of
from storage.lanes.lane import Lane, LaneRuntime, Lanes, LaneView
from storage.lanes.watch import NEWS_S, any_changed
from storage.lanes.windows import WindowPages
from storage.reading.catalog import ENTRIES_MAX, Catalog
from storage.reading.forms import KafkaForm
from storage.reading.reader import Budget, LogReader
from storage.reading.table_batches import TableBatches
from storage.stores.metadata import MetadataStore
from storage.tasks import Arrivals
from storage.topics.topics import Topic, Topics
from storage.zones.zones import Zones

if TYPE_CHECKING:
    from service.registry.edge.codecs import SchemaCodecs
    from service.registry.edge.validation.validation import Validation
    from service.registry.reading import SchemaReader

T = TypeVar("T")

Wanted: TypeAlias = "int | Sequence[int | None] | pa.Array | None"
"""One partition for all records, or one per record; None: chosen by key."""


__all__ = ["FetchResult", "Gateway", "Place", "Position", "Wait", "Wanted", "Watch"]


class Gateway:
    def __init__(
        self,
        settings: Settings,
        zones: Zones,
        metadata: MetadataStore,
        world: World,
        *,
        news_s: float = NEWS_S,
    ) -> None:
        self.settings = settings
        self.world = world
        self.zones = zones
        self.metadata = metadata
        self.admission = Admission(settings.held_bytes_max)
        self.heavy_work = HeavyWork()
        self.outgoing = Shares(settings.fetch_held_bytes_max)
        self.keyring = open_keyring(settings, metadata, world)
        self.topics = Topics(
            metadata,
            zones.names,
            world.new_id,
            world.now_ms,
            world.monotonic_s,
            back_off=world.back_off,
            check_key=self.keyring.check,
        )
        batches = TableBatches(metadata)
        self.catalog = catalog = Catalog(zones, world.new_id, settings.index_cache_bytes, batches)
        self._lane_runtime = LaneRuntime(
            metadata=metadata,
            zones=zones,
            catalog=catalog,
            monotonic_s=world.monotonic_s,
            sleep=world.sleep,
            random=world.random,
            poll_interval_s=settings.head_poll_ms / 1000,
            window_pages=WindowPages(zones, world.new_id, settings.index_cache_bytes // 4),
            now_ms=world.now_ms,
            producer_expiration_ms=settings.producer_id_expiration_ms,
            news_s=news_s,
        )
        self.lanes = Lanes(self._lane_runtime)
        self.atomic = AtomicCommits(self.lanes, self._lane_runtime)
        self.reader = LogReader(zones, catalog, settings.slice_cache_bytes, self.keyring)
        self.batcher = Batcher(
            zones,
            self.lanes,
            self.reader,
            BatchLimits(
                batch_bytes_max=settings.batch_bytes_max,
                linger_min_s=settings.linger_min_ms / 1000,
                linger_max_s=settings.linger_max_ms / 1000,
                flights_max=settings.flights_max,
                table_batch_bytes_max=settings.table_batch_bytes_max or 0,
            ),
            world.new_id,
            keyring=self.keyring,
        )
        self._questions = Questions(self.reader, self.outgoing, self._lane_runtime.releases)
        self._spreaders: dict[bytes, Spreader] = {}
        self._converting = Arrivals[tuple[bytes, PartitionNumber]]()
        """By partition: batches that are stored in another form than they came in."""
        self.draining = asyncio.Event()

    # Producing

    async def produce(
        self,
        topic_name: str,
        batch: pa.RecordBatch,
        size_bytes: int,
        wanted: Wanted,
        numbered: Numbered | None = None,
        *,
        waits_for_all: bool = True,
        sent: Sequence[Sent] = (),
    ) -> dict[PartitionNumber, tuple[int, int]]:
        """Append the records; return (base offset, count) by partition, once durable.

        Durable means stored in all zones in sync, or in the leading zone only if
        `waits_for_all` is false.
        Records that a producer `numbered` are appended once, however often they are sent.
        If all records go to one partition unchanged, they may be stored as they were `sent`.
        """

        async def attempt(topic: Topic) -> dict[PartitionNumber, tuple[int, int]]:
            parts = await self.assigned(topic, batch, wanted, numbered)
            claims = claims_of(topic, parts, numbered)
            is_unchanged = len(parts) == 1 and next(iter(parts.values())) is batch
            bases = await self.batcher.append(
                topic,
                parts,
                size_bytes,
                claims,
                waits_for_all=waits_for_all,
                sent=sent if is_unchanged else (),
            )
            return {p: (bases[p], part.num_rows) for p, part in parts.items()}

        with self._lane_runtime.releases.yielding():
            return await self.with_topic(topic_name, attempt)

    async def produce_batches(
        self,
        topic_name: str,
        partition: PartitionNumber,
        batches: Batches,
        numbered: Numbered | None = None,
        *,
        waits_for_all: bool = True,
        check: LateCheck | None = None,
    ) -> int:
        """Append batches that came by Kafka's protocol; return their base offset, once durable.

        They were checked already (`storage.formats.kafka.batches.check`, with `needs_keys` for a
        compacted topic), or are what they claim (`claimed_by`), and the `check` is made while
        they are written. Their bytes must not change any more. They are stored as they came,
        unless the topic's settings ask for another form, codec or timestamp. Otherwise as
        `produce`.
        """

        async def attempt(topic: Topic) -> int:
            topic.check_partition(partition)
            found, late = batches, check
            if late is not None and (topic.schema_rules or not is_kept(topic.config, found)):
                found, late = await late(), None
            records = await self.as_stored(topic, partition, found)
            parts = {partition: records}
            bases = await self.batcher.append(
                topic,
                parts,
                size_of(records),
                claims_of(topic, parts, numbered),
                waits_for_all=waits_for_all,
                check=late,
            )
            return bases[partition]

        with self._lane_runtime.releases.yielding():
            return await self.with_topic(topic_name, attempt)

    async def as_stored(
        self, topic: Topic, partition: PartitionNumber, batches: Batches
    ) -> Records:
        """Return batches in the form that they are stored in, in the order of arrival.

        Raises `SchemaMismatch` for records that lack what the topic's rules ask for.
        """
        place = topic.topic_id, partition
        is_as_came = is_kept(topic.config, batches)
        if is_as_came and not topic.schema_rules and not self._converting.is_busy(place):
            return batches
        now_ms = self.world.now_ms()
        async with self._converting.in_turn(place):
            if topic.schema_rules:
                await self._validation.check(topic, batches)
                batches = replace(batches, opened=None)
            if is_as_came:
                return batches
            return await self.heavy_work.convert(
                len(batches.data), lambda: as_stored(topic.config, batches, now_ms)
            )

    async def produce_later(
        self, topic_name: str, batch: pa.RecordBatch, size_bytes: int, wanted: Wanted
    ) -> tuple[dict[PartitionNumber, int], Callable[[], Awaitable[object]]]:
        """Only choose partitions: return the count by partition, and the append to run later."""

        async def attempt(topic: Topic) -> tuple[Topic, Mapping[PartitionNumber, pa.RecordBatch]]:
            return topic, await self.assigned(topic, batch, wanted)

        topic, parts = await self.with_topic(topic_name, attempt)
        counts = {p: part.num_rows for p, part in parts.items()}
        return counts, lambda: self.batcher.append(topic, parts, size_bytes)

    async def assigned(
        self,
        topic: Topic,
        batch: pa.RecordBatch,
        wanted: Wanted,
        numbered: Numbered | None = None,
        rows: Sequence[int] | None = None,
    ) -> Mapping[PartitionNumber, pa.RecordBatch]:
        """Return the records of each partition of the topic, as they are to be stored.

        Raises `SchemaMismatch` for records that lack what the topic's rules ask for; `rows` are
        their places in the request, if that has others, too.
        """
        if topic.schema_rules:
            await self._validation.check(topic, batch, rows)
        if topic.config.is_compacted and batch.column(1).null_count:
            row = batch.column(1).is_null().to_pylist().index(True)
            raise InvalidRecord(
                f"records[{row}]: topic {topic.name!r} is compacted, so every record needs a key"
            )
        if topic.config.stamps_appends:
            now = pa.array([self.world.now_ms()] * batch.num_rows, pa.int64())
            batch = pa.RecordBatch.from_arrays([now, *batch.columns[1:]], schema=RECORD_SCHEMA)
        if isinstance(wanted, int):
            topic.check_partition(wanted)
            return {PartitionNumber(wanted): batch}
        spreader = self._spreader(topic, numbered)
        # Its keys are the numbers of partitions; to convert each would cost time, for nothing.
        return assign(batch, wanted, topic.partition_count, spreader)  # type: ignore[return-value]

    @cached_property
    def schemas(self) -> "SchemaReader":
        """What is registered. Most gateways never need it, so it is imported when they do."""
        from service.registry.reading import SchemaReader

        return SchemaReader(self.metadata, self.world, self.heavy_work)

    @cached_property
    def schema_codecs(self) -> "SchemaCodecs":
        from service.registry.edge.codecs import SchemaCodecs

        return SchemaCodecs(self.schemas)

    @cached_property
    def _validation(self) -> "Validation":
        from service.registry.edge.validation.validation import Validation

        return Validation(self.schemas, self.schema_codecs, self.heavy_work)

    def _spreader(self, topic: Topic, numbered: Numbered | None) -> Spreader:
        if numbered is not None:
            return Keeper(numbered.producer_id // 2)
        spreader = self._spreaders.get(topic.topic_id)
        if spreader is None:
            # Not all gateways begin with partition 0.
            cursor = int(self.world.random() * topic.partition_count)
            spreader = self._spreaders[topic.topic_id] = Spreader(cursor)
        return spreader

    async def with_topic(self, name: str, call: Callable[[Topic], Awaitable[T]]) -> T:
        """Call with the topic; retry once if the cached topic turns out to be stale."""
        topic = await self.topics.get(name)
        try:
            return await call(topic)
        except UnknownTopicOrPartition as error:
            # Deleted, recreated or widened since: nothing was written or read yet.
            try:
                now = await self.topics.read(name)
            except UnknownTopicOrPartition:
                self.forget(topic.topic_id)
                raise
            if isinstance(error, HeadGone) and now.topic_id == topic.topic_id:
                raise HeadMissing(name, error.key) from error
            if now == topic:
                raise
            if now.topic_id != topic.topic_id:
                self.forget(topic.topic_id)
        return await call(now)

    def forget(self, topic_id: bytes) -> None:
        """Drop what is cached for a deleted topic."""
        self.lanes.forget(topic_id)
        self.keyring.forget(topic_id)
        self._spreaders.pop(topic_id, None)

    # Reading

    async def fetch(
        self,
        topic_name: str,
        partition: PartitionNumber,
        position: Position,
        budget: Budget,
        wait: Wait,
        shares: RequestShares | None = None,
        *,
        as_kafka: bool = False,
    ) -> FetchResult:
        """Return records from `position` on; wait for `min_bytes` of them if there are fewer.

        They are Arrow slices, or, `as_kafka`, batches that `storage.reading.forms.kafka_bytes`
        makes ready to be sent: kept as they came, or converted once for all readers.
        They count as being sent until the caller releases `shares`; without, until this returns.
        """

        async def attempt(topic: Topic) -> FetchResult:
            with RequestShares(self.outgoing) as own:
                form = kafka_form(topic.config) if as_kafka else None
                result = await self._fetch(topic, partition, position, budget, wait, own, form)
                if shares is not None:
                    own.move_to(shares)
                return result

        return await self.with_topic(topic_name, attempt)

    async def _fetch(
        self,
        topic: Topic,
        partition: PartitionNumber,
        position: Position,
        budget: Budget,
        wait: Wait,
        shares: RequestShares,
        form: KafkaForm | None,
    ) -> FetchResult:
        lane, local = self._lane(topic, partition)
        began_s = self.world.monotonic_s()
        offset, view = await self._start(lane, local, position, may_wait=wait.max_wait_s > 0)
        poll = self.long_poll(wait.max_wait_s)
        question = Question(lane, local, offset, budget, wait.min_bytes, form)
        answer = self._questions.recent(question, view, shares) if wait.max_wait_s > 0 else None
        if answer is None and wait.max_wait_s > 0 and self._questions.is_next(lane, local, offset):
            answer = await self._questions.answer(question, None, began_s, wait.max_wait_s, shares)
            view = await lane.view(READ_VIEW_AGE_MAX_S)
        while True:
            share = shares.take(budget.bytes_max)
            if answer is not None and share.size_bytes >= answer.fetched.size_bytes:
                fetched = answer.fetched
                view = max(view, answer.view, key=lambda each: each.head.commits)
            else:
                read = partial(
                    self.reader.fetch,
                    partition=local,
                    offset=offset,
                    budget=replace(budget, bytes_max=share.size_bytes),
                    form=form,
                )
                fetched, view = await reread(lane, view, read)
                if answer is not None:
                    shares.release(answer.share)
                    answer = None
            share.hold(fetched.size_bytes)
            left_s = poll.left_s
            is_done = question.is_answered_by(fetched, view) or left_s == 0
            is_whole = fetched.end_offset == view.head.next_offsets[local]
            if (
                is_whole
                and view.read_began_s <= began_s
                and (is_done or not lane.watched.is_polled(view))
            ):
                # Readers stop at the end, so the reported end must be current.
                view = await lane.view(0)
                has_more = fetched.end_offset < view.head.next_offsets[local]
                if has_more and not (is_done and fetched.slices):
                    # Too little was read, and there is more by now: read again, without a wait.
                    shares.release_all()
                    answer = None
                    continue
            if is_done:
                return FetchResult(
                    topic=topic,
                    partition=partition,
                    fetched=fetched,
                    high_watermark=view.head.next_offsets[local],
                    log_start_offset=view.head.log_starts[local],
                    watch=(lane, view, local),
                    share=share,
                    answer=answer,
                )
            # While waiting for more, release the records read so far.
            shares.release_all()
            del fetched, answer
            answer = await self._questions.answer(question, view, began_s, left_s, shares)
            view = await lane.view(READ_VIEW_AGE_MAX_S)

    async def _start(
        self, lane: Lane, local: LanePartition, position: Position, *, may_wait: bool
    ) -> tuple[int, LaneView]:
        if position.offset is not None:
            view = await lane.view(READ_VIEW_AGE_MAX_S)
            if local >= view.head.partition_count or (
                position.offset >= view.head.next_offsets[local]
                and not (
                    may_wait
                    and position.offset == view.head.next_offsets[local]
                    and lane.watched.is_polled(view)
                )
            ):
                # At the last known end, only reading the head shows new records. A request that
                # may wait there can rely on the poll of the requests already waiting.
                view = await lane.view(0)
            check_width(view.head, local)
            return position.offset, view
        view = await lane.view(0)
        check_width(view.head, local)
        at = "earliest" if position.at is None else position.at
        (offset, _), view = await self._resolve(lane, view, local, at)
        return offset, view

    async def _resolve(
        self, lane: Lane, view: LaneView, local: LanePartition, at: Place
    ) -> tuple[tuple[int, int], LaneView]:
        match at:
            case "earliest":
                return (view.head.log_starts[local], -1), view
            case "latest":
                return (view.head.next_offsets[local], -1), view
            case _:
                read = partial(self.reader.offset_at, partition=local, timestamp_ms=at)
                return await reread(lane, view, read)

    async def offset_at(
        self, topic_name: str, partition: PartitionNumber, at: Place
    ) -> tuple[int, int]:
        """Return the offset at a moment, and the timestamp of its record (-1: none)."""

        async def attempt(topic: Topic) -> tuple[int, int]:
            lane, local = self._lane(topic, partition)
            view = await lane.view(0)
            check_width(view.head, local)
            found, _ = await self._resolve(lane, view, local, at)
            return found

        return await self.with_topic(topic_name, attempt)

    async def locate(
        self,
        topic_name: str,
        partition: PartitionNumber,
        offset: int | None,
        end: int | None,
        limit: int = ENTRIES_MAX,
    ) -> Located:
        """Return index entries that hold `offset` to `end`, at most `limit`."""

        async def attempt(topic: Topic) -> Located:
            lane, local = self._lane(topic, partition)
            view = await lane.view(0)
            check_width(view.head, local)
            read = partial(locate, self.reader, local=local, offset=offset, end=end, limit=limit)
            found, _ = await reread(lane, view, read)
            return found

        if end is not None and offset is not None and end < offset:
            raise InvalidRequest(f"end: {end} is before offset {offset}")
        return await self.with_topic(topic_name, attempt)

    async def data_key(self, topic_name: str, number: int) -> DataKey:
        """Return a data key of an encrypted topic, unwrapped."""

        async def attempt(topic: Topic) -> DataKey:
            if not topic.config.is_encrypted:
                raise InvalidRequest(f"topic {topic_name!r} is not encrypted, so it has no keys")
            return (await self.keyring.key(topic.topic_id, number)).key

        # Read now: a topic that was deleted has no keys any more.
        self.topics.forget(topic_name)
        return await self.with_topic(topic_name, attempt)

    def long_poll(self, max_wait_s: float) -> LongPoll:
        """Return the wait of a request that may wait for `max_wait_s` from now on."""
        now_s = self.world.monotonic_s
        return LongPoll(now_s() + max_wait_s, now_s, self.draining)

    async def changed(self, watched: Sequence[Watch], timeout_s: float) -> None:
        """Return when any of the partitions moved, or after `timeout_s`."""
        heads = [(lane.watched, view, local) for lane, view, local in watched]
        await any_changed(heads, timeout_s)

    async def partition(self, topic_name: str, partition: PartitionNumber) -> PartitionInfo:
        """Return where one partition begins and ends now."""

        async def attempt(topic: Topic) -> PartitionInfo:
            lane, local = self._lane(topic, partition)
            view = await lane.view(0)
            check_width(view.head, local)
            return partition_info(partition, local, view.head)

        return await self.with_topic(topic_name, attempt)

    async def partitions(self, topic_name: str) -> list[PartitionInfo]:
        async def attempt(topic: Topic) -> list[PartitionInfo]:
            views = await asyncio.gather(
                *(self.lanes.lane(topic.topic_id, number).view(0) for number in topic.lanes)
            )
            infos = []
            for partition in topic.partitions:
                number, local = topic.lane_of(partition)
                check_width(views[number].head, local)
                infos.append(partition_info(partition, local, views[number].head))
            return infos

        return await self.with_topic(topic_name, attempt)

    def _lane(self, topic: Topic, partition: PartitionNumber) -> tuple[Lane, LanePartition]:
        number, local = topic.lane_of(partition)
        return self.lanes.lane(topic.topic_id, number), local

    # Life

    def drain(self) -> None:
        """Begin to stop: answer requests that wait for records with what there is."""
        self.draining.set()
        self._questions.is_draining = True
        self.lanes.wake_all()

    async def aclose(self) -> None:
        """Answer every append, then release the stores."""
        self.drain()
        await self.batcher.aclose()
        await self._lane_runtime.aclose()
        await self.metadata.close()
        await self.zones.close()
