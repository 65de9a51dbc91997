"""Sending dead letters again, each once to the same destination, whatever dies.

A call reads letters from where the last one ended, and sends those that are meant and were not sent
there before. It appends a batch in the same metadata transaction in which the ranges of what was
sent change (`sent.py`). A call has a budget of time and letters, and says where the next goes on;
nothing is kept between calls but the ranges. Letters that arrive meanwhile are for the next
re-drive: what fails again at once does not go round in circles.

A record is sent as it was: key, value, timestamp, and headers without `__connect.errors.*`. The
count `__riacho.errors.count` stays, and grows if it is given up again. To its origin it goes into
the partition that it came from, else where its key belongs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from service.connect.data.errors import ConfigFault
from service.connect.data.log_records import LogRecord
from service.connect.dead_letters.bodies import (
    Continuation,
    LetterFilterBody,
    RedriveAnswer,
    RedriveRefusal,
)
from service.connect.dead_letters.destinations import Destination, Unsendable
from service.connect.dead_letters.reading import BATCH_MAX, Letter, batches, is_meant
from service.connect.dead_letters.sent import (
    RANGES_MAX,
    SentLetters,
    decode_sent,
    encode_sent,
)
from service.connect.tasks.committing import topic_records
from service.connect.tasks.letters import CONTEXT_PREFIX
from service.log.gateway import Gateway
from service.transactions.atomic import Atomic
from service.transactions.guards import GuardedAnswer
from service.transactions.state import Results
from storage import keys
from storage.cas import Keep, Replace, change_item
from storage.errors import (
    Contended,
    InvalidRequest,
    MetadataConflict,
    Rejected,
    Unauthorized,
)
from storage.stores.metadata import MetadataStore, Op, Put, Versioned

CALL_S_MAX: Final = 10.0
"""A call ends after this long, at the end of a batch."""

LETTERS_MAX: Final = 20_000
"""Letters that one call reads."""

REFUSALS_SHOWN_MAX: Final = 20
RACES_MAX: Final = 10
"""Other re-drives of the same letters that a batch gives way to."""

STEP_S: Final = 0.5
"""With a rate, as many letters are sent at once as it allows in this time."""

Mend = Callable[[str, LogRecord], "tuple[str, LogRecord] | None"]
"""Takes a topic and a record; returns both as they are to be sent; None: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOrder:
    """What is to be sent again, and where to."""

    topic: str
    destination: Destination
    wanted: LetterFilterBody
    mend: Mend | None
    rate: float | None
    sent_max: int | None
    is_dry: bool


@dataclass(slots=True)
class _Tally:
    """What a call has done so far."""

    looked_at: int = 0
    matched: int = 0
    sent: int = 0
    sent_before: int = 0
    dropped: int = 0
    refused_count: int = 0
    refused: list[RedriveRefusal] = field(default_factory=list)
    destinations: dict[str, int] = field(default_factory=dict)
    exceptions: dict[str, int] = field(default_factory=dict)

    def refuse(self, letter: Letter, reason: str) -> None:
        self.refused_count += 1
        if len(self.refused) < REFUSALS_SHOWN_MAX:
            self.refused.append(RedriveRefusal(letter.partition, letter.record.offset, reason))

    def send(self, parcels: "Sequence[_Parcel]") -> None:
        for parcel in parcels:
            if parcel.record is None:
                self.dropped += 1
                continue
            self.sent += 1
            exception = parcel.letter.exception
            self.destinations[parcel.topic] = self.destinations.get(parcel.topic, 0) + 1
            self.exceptions[exception] = self.exceptions.get(exception, 0) + 1


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A letter, and what is sent of it; None: nothing, but it is dealt with."""

    letter: Letter
    topic: str
    record: LogRecord | None

    @property
    def offset(self) -> int:
        return self.letter.record.offset


class _Overtaken(Exception):
    """Another re-drive has changed what was sent: look again.

    Not of the log's family, so that no attempt in between takes it for something else.
    """


class _SentGuard:
    """Makes the append of letters hold only with the ranges that say so."""

    op_count = 1

    def __init__(
        self,
        metadata: MetadataStore,
        key: str,
        seen: Versioned | None,
        new: SentLetters,
        offsets: Sequence[int],
    ) -> None:
        self._metadata = metadata
        self._key = key
        self._seen = seen
        self._new = new
        self._offsets = offsets
        self._is_used = False

    async def look(self) -> GuardedAnswer | None:
        stored = await self._metadata.get(self._key)
        if _version(stored) == _version(self._seen):
            return None
        # Whoever has sent them, they are sent: an attempt of ours that was not answered, perhaps.
        now = SentLetters("") if stored is None else decode_sent(stored.value)
        if all(offset in now for offset in self._offsets):
            return GuardedAnswer(results=None)
        raise _Overtaken

    async def ops(self, _: Results) -> list[Op] | GuardedAnswer:
        if self._is_used:
            # The write met a conflict, perhaps with this item.
            answer = await self.look()
            if answer is not None:
                return answer
        self._is_used = True
        return self.puts()

    def puts(self) -> list[Op]:
        return [Put(self._key, encode_sent(self._new), _version(self._seen))]

    def answer(self, results: Results) -> GuardedAnswer:
        return GuardedAnswer(results=results)


class Redrive:
    """One call."""

    def __init__(self, gateway: Gateway, atomic: Atomic, order: RedriveOrder) -> None:
        self._gateway = gateway
        self._atomic = atomic
        self._order = order
        self._world = gateway.world
        self._tally = _Tally()
        self._until_s = self._world.monotonic_s() + CALL_S_MAX
        self._topic_id = b""
        self._log_starts: Mapping[int, int] = {}

    async def run(self, within: Sequence[Continuation]) -> RedriveAnswer:
        """Send what is within these ranges, as far as the budget of a call goes."""
        topic = await self._gateway.topics.read(self._order.topic)
        self._topic_id = topic.topic_id
        infos = await self._gateway.partitions(topic.name)
        self._log_starts = {info.partition: info.log_start_offset for info in infos}
        left = [each for each in within if each.partition in self._log_starts]
        while left and not self._is_over:
            first = left[0]
            end = await self._partition(first)
            left = ([] if end >= first.end else [replace(first, offset=end)]) + left[1:]
        tally = self._tally
        return RedriveAnswer(
            looked_at=tally.looked_at,
            matched=tally.matched,
            sent=tally.sent,
            sent_before=tally.sent_before,
            dropped=tally.dropped,
            destinations=tally.destinations,
            exceptions=tally.exceptions,
            refused=tally.refused,
            refused_count=tally.refused_count,
            next=left,
            done=not left,
        )

    @property
    def _is_over(self) -> bool:
        return (
            self._world.monotonic_s() >= self._until_s
            or self._tally.looked_at >= LETTERS_MAX
            or self._left <= 0
        )

    @property
    def _left(self) -> int:
        """How many letters may still be sent."""
        sent_max = self._order.sent_max
        return LETTERS_MAX if sent_max is None else sent_max - self._tally.sent

    async def _partition(self, within: Continuation) -> int:
        """Send letters of one partition; return the offset behind the last that was looked at."""
        async with aclosing(batches(self._gateway, self._order.topic, within)) as found:
            async for letters, end in found:
                stopped_at = await self._batch(letters)
                if stopped_at is not None:
                    return stopped_at
                if self._is_over:
                    return end
        return within.end

    async def _batch(self, letters: Sequence[Letter]) -> int | None:
        """Send those that are meant; return the offset to go on with if the call is over before."""
        meant = [each for each in letters if is_meant(each, self._order.wanted)]
        done = 0
        while done < len(meant) and not self._is_over:
            step = meant[done : done + self._step]
            await self._step_of(step)
            done += len(step)
        self._tally.matched += done
        if done == len(meant):
            self._tally.looked_at += len(letters)
            return None
        offset = meant[done].record.offset
        self._tally.looked_at += sum(each.record.offset < offset for each in letters)
        return offset

    @property
    def _step(self) -> int:
        rate = self._order.rate
        count = BATCH_MAX if rate is None else max(1, int(rate * STEP_S))
        return max(1, min(count, BATCH_MAX, self._left))

    async def _step_of(self, letters: Sequence[Letter]) -> None:
        before = self._tally.sent
        for _ in range(RACES_MAX):
            key = keys.redrive(self._topic_id, letters[0].partition, self._order.destination.name)
            seen = await self._gateway.metadata.get(key)
            sent = SentLetters(self._order.destination.name)
            if seen is not None:
                sent = decode_sent(seen.value)
            elif not self._order.is_dry:
                await self._list_topic()
            open_letters = [each for each in letters if each.record.offset not in sent]
            try:
                parcels, refusals = await self._parcels(open_letters)
                await self._deliver(key, seen, sent, parcels, refusals)
            except _Overtaken:
                continue
            break
        else:
            raise Contended("other re-drives send the same letters all the time; send it again")
        self._tally.sent_before += len(letters) - len(open_letters)
        for letter, reason in refusals:
            self._tally.refuse(letter, reason)
        if self._order.rate is not None and not self._order.is_dry:
            await self._world.sleep((self._tally.sent - before) / self._order.rate)

    async def _list_topic(self) -> None:
        """Note that letters of the topic are sent, so that this is forgotten with the topic."""
        key = keys.redriven(self._topic_id)
        item = encode_sent(SentLetters("", [], self._world.now_ms()))

        async def decide(stored: Versioned | None) -> Keep[None] | Replace[None]:
            return Keep(None) if stored is not None else Replace(item, None)

        await change_item(self._gateway.metadata, key, decide, self._world.patience)

    async def _parcels(
        self, letters: Sequence[Letter]
    ) -> tuple[list[_Parcel], list[tuple[Letter, str]]]:
        """Return what is to be sent, and the letters that cannot be, with the reasons."""
        parcels: list[_Parcel] = []
        refusals: list[tuple[Letter, str]] = []
        for letter in letters:
            try:
                topic, record = await self._order.destination.address(letter, _cleaned(letter))
                mended = (
                    (topic, record) if self._order.mend is None else self._mended(topic, record)
                )
                if mended is None:
                    parcels.append(_Parcel(letter, topic, None))
                else:
                    await self._order.destination.check(mended[0])
                    parcels.append(_Parcel(letter, *mended))
            except Unsendable as error:
                refusals.append((letter, str(error)))
        return parcels, refusals

    def _mended(self, topic: str, record: LogRecord) -> tuple[str, LogRecord] | None:
        assert self._order.mend is not None
        try:
            return self._order.mend(topic, record)
        except ConfigFault:
            raise
        except Exception as error:
            raise Unsendable(f"the transform failed: {error}") from error

    async def _deliver(
        self,
        key: str,
        seen: Versioned | None,
        sent: SentLetters,
        parcels: Sequence[_Parcel],
        refusals: list[tuple[Letter, str]],
    ) -> None:
        """Append the parcels and note that they are sent; what the log refuses is refused."""
        if not parcels:
            return
        if self._order.is_dry:
            self._tally.send(parcels)
            return
        try:
            await self._append(key, seen, sent, parcels)
        except (Unauthorized, InvalidRequest):
            raise
        except Rejected as error:
            if len(parcels) == 1:
                refusals.append((parcels[0].letter, f"{error} ({error.code})"))
                return
            # One of them is refused, so all are: find out which.
            middle = len(parcels) // 2
            await self._deliver(key, seen, sent, parcels[:middle], refusals)
            seen = await self._gateway.metadata.get(key)
            sent = sent if seen is None else decode_sent(seen.value)
            others = [parcel for parcel in parcels[middle:] if parcel.offset not in sent]
            await self._deliver(key, seen, sent, others, refusals)
            return
        self._tally.send(parcels)

    async def _append(
        self,
        key: str,
        seen: Versioned | None,
        sent: SentLetters,
        parcels: Sequence[_Parcel],
    ) -> None:
        offsets = [parcel.offset for parcel in parcels]
        now_ms = self._world.now_ms()
        log_start = self._log_starts[parcels[0].letter.partition]
        new = sent.with_offsets(offsets, log_start, now_ms)
        if len(new.ranges) > RANGES_MAX:
            raise InvalidRequest(
                f"filter: it leaves more than {RANGES_MAX} gaps between letters that were sent and"
                " others; send some of the others first, with a wider filter"
            )
        by_topic: dict[str, list[LogRecord]] = {}
        for parcel in parcels:
            if parcel.record is not None:
                by_topic.setdefault(parcel.topic, []).append(parcel.record)
        guard = _SentGuard(self._gateway.metadata, key, seen, new, offsets)
        if not by_topic:
            try:
                await self._gateway.metadata.transact(guard.puts())
            except MetadataConflict:
                raise _Overtaken from None
            return
        records = [topic_records(topic, of, now_ms) for topic, of in by_topic.items()]
        size_bytes = sum(of.batch.nbytes for of in records)
        await self._atomic.write(records, size_bytes, None, guard)


def _cleaned(letter: Letter) -> LogRecord:
    record = letter.record
    headers = tuple(each for each in record.headers if not each[0].startswith(CONTEXT_PREFIX))
    return replace(record, headers=headers, partition=None, offset=-1)


def _version(item: Versioned | None) -> str | None:
    return None if item is None else item.version
