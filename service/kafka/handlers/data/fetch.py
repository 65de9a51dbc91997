"""Fetch: batches from several partitions, with one wait and one budget of bytes.

There are no fetch sessions: every answer says session 0, and clients send their whole list each
time. A fetch that finds nothing costs no read of the table where other fetches wait at the same
lanes, because they share one poll: what a partition's end was at the last poll is known.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from service.http.metrics import Metrics
from service.kafka.brokers.brokers import LEADER_EPOCH, Brokers
from service.kafka.call import KafkaCall
from service.kafka.failures import code_of
from service.kafka.handlers.data.fetch_answers import Answers, FetchPart, kafka_bytes_of
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic
from service.kafka.topic_ids import TopicIds
from service.log.gateway import FetchResult, Gateway, Position, Wait, Watch
from service.log.partition_info import check_width
from service.process.limits.outgoing import RequestShares
from service.security.acls import Operation, ResourceType
from storage.errors import OffsetOutOfRange, QuotaExceeded, RiachoError
from storage.formats.partitions import PartitionNumber
from storage.reading.reader import Budget
from storage.tasks import in_turns
from storage.topics.topics import Topic

FETCHES_AT_ONCE: Final = 16
"""Partitions of one request that are read concurrently. More would read beyond the budget, fewer
would wait for the store more often."""

RECORDS_MAX: Final = 2**31 - 1
"""Kafka's budget is in bytes alone."""

READ_COMMITTED: Final = 1

WAITED_AGE_S: Final = 1.0
"""After a wait, an end that the poll has found is recent enough: the next request asks again."""


@dataclass(frozen=True, slots=True)
class _AtEnd:
    """A partition with nothing behind the offset that was asked for, as was known then."""

    watch: Watch

    @property
    def ends(self) -> tuple[int, int]:
        """Return the high watermark and the log start."""
        _, view, local = self.watch
        return view.head.next_offsets[local], view.head.log_starts[local]


class KafkaFetch:
    def __init__(self, gateway: Gateway, brokers: Brokers, ids: TopicIds, metrics: Metrics) -> None:
        self._gateway = gateway
        self._brokers = brokers
        self._ids = ids
        self._metrics = metrics
        self._known_s = gateway.settings.head_poll_ms / 1000

    async def answer(self, call: KafkaCall, request: FetchRequest) -> FetchResponse:
        if request.session_id != 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch > 0:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        answers = await self._asked(call, request)
        shares = RequestShares(self._gateway.outgoing)
        try:
            await self._fetch(call, request, answers, shares)
        except QuotaExceeded as error:
            # As Kafka does: nothing now, and a client that knows when to come back. One that does
            # not is held up here.
            shares.release_all()
            wait_ms = min(error.throttle_ms, max(0, request.max_wait_ms))
            await self._gateway.world.sleep(wait_ms / 1000)
            return answers.emptied(error.throttle_ms)
        except BaseException:
            shares.release_all()
            raise
        call.when_sent.append(shares.release_all)
        await answers.name_leaders(call, self._brokers)
        return answers.response

    async def _fetch(
        self, call: KafkaCall, request: FetchRequest, answers: Answers, shares: RequestShares
    ) -> None:
        quotas = call.caller.quotas
        bytes_max = max(1, min(request.max_bytes, self._gateway.settings.fetch_bytes_max))
        affordable = quotas.fetch_bytes_max(call.caller)
        if affordable is not None:
            bytes_max = min(bytes_max, affordable)
        longest_s = self._gateway.settings.wait_ms_max / 1000
        poll = self._gateway.long_poll(min(max(0, request.max_wait_ms) / 1000, longest_s))
        has_waited = False
        with quotas.open_wait(call.caller, poll.left_s):
            while True:
                good = [part for part in answers.parts if not part.answer.error_code]
                left_s = poll.left_s
                age_s = WAITED_AGE_S if has_waited else self._known_s if left_s > 0 else 0.0
                found = await self._fetch_each(good, bytes_max, shares, age_s)
                is_done = _is_enough(found, request.min_bytes) or any(
                    part.answer.error_code for part in answers.parts
                )
                if is_done or left_s == 0 or not found:
                    break
                shares.release_all()
                watched = [each.watch for each in found if each is not None]
                await self._gateway.changed(watched, left_s)
                has_waited = True
                await call.caller.renew()
                self._refuse_unauthorized(call, good)
        await self._fill(call, good, found, bytes_max, answers)

    # What was asked for

    async def _asked(self, call: KafkaCall, request: FetchRequest) -> Answers:
        """Return the partitions that were asked for, with the codes of those that are refused."""
        answers = Answers(is_committed_only=request.isolation_level == READ_COMMITTED)
        is_draining = self._gateway.draining.is_set()
        async for wanted in in_turns(request.topics):
            parts = answers.add(wanted)
            topic, code = await self._topic(call, wanted)
            if is_draining and not code:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            async for part in in_turns(parts):
                part.topic = topic
                part.answer.error_code = code or await self._problem(part)
        return answers

    async def _topic(self, call: KafkaCall, wanted: FetchTopic) -> tuple[Topic | None, ErrorCode]:
        try:
            if call.version >= 13:
                topic = await self._ids.topic(wanted.topic_id)
                if topic is None:
                    return None, ErrorCode.UNKNOWN_TOPIC_ID
                call.caller.require_topic(Operation.READ, topic.name)
            else:
                name = call.caller.inner_name(wanted.topic)
                call.caller.require_topic(Operation.READ, name)
                topic = await self._gateway.topics.get(name)
        except RiachoError as error:
            return None, code_of(error)
        return topic, ErrorCode.NONE

    async def _problem(self, part: FetchPart) -> ErrorCode:
        assert part.topic is not None
        if part.wanted.current_leader_epoch > LEADER_EPOCH:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if part.wanted.partition >= part.topic.partition_count:
            try:
                # Another gateway may have added it since.
                part.topic = await self._gateway.topics.read(part.topic.name)
            except RiachoError as error:
                return code_of(error)
        if not 0 <= part.wanted.partition < part.topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def _refuse_unauthorized(self, call: KafkaCall, parts: Sequence[FetchPart]) -> None:
        """Look again at what the caller may read: it may have changed during the wait."""
        for part in parts:
            assert part.topic is not None
            if not call.caller.allows(Operation.READ, ResourceType.TOPIC, part.topic.name):
                part.answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    # Reading

    async def _fetch_each(
        self,
        parts: Sequence[FetchPart],
        bytes_max: int,
        shares: RequestShares,
        age_s: float,
    ) -> list[FetchResult | _AtEnd | None]:
        """Read all partitions, some at a time, until the budget is used up.

        Ends that are known to be at most `age_s` old need not be read.
        """
        left = bytes_max
        found: list[FetchResult | _AtEnd | None] = []
        waiting: list[FetchPart] = []
        for part in parts:
            at_end = self._at_known_end(part, age_s)
            found.append(at_end)
            if at_end is None:
                waiting.append(part)
        places = [number for number, each in enumerate(found) if each is None]
        for start in range(0, len(waiting), FETCHES_AT_ONCE):
            wave = waiting[start : start + FETCHES_AT_ONCE]
            results = await asyncio.gather(*(self._fetch_one(p, left, shares) for p in wave))
            for number, result in enumerate(results):
                found[places[start + number]] = result
                if result is not None:
                    left = max(0, left - result.fetched.size_bytes)
        return found

    def _at_known_end(self, part: FetchPart, age_s: float) -> _AtEnd | None:
        """Return the end of the partition if it is known to be where the fetch begins."""
        assert part.topic is not None
        number, local = part.topic.lane_of(PartitionNumber(part.wanted.partition))
        lane = self._gateway.lanes.lane(part.topic.topic_id, number)
        view = lane.known(age_s)
        if view is None or local >= view.head.partition_count:
            return None
        if view.head.next_offsets[local] != part.wanted.fetch_offset:
            return None
        return _AtEnd((lane, view, local))

    async def _fetch_one(
        self, part: FetchPart, left: int, shares: RequestShares
    ) -> FetchResult | None:
        assert part.topic is not None
        wanted = part.wanted
        budget = Budget(
            records_max=RECORDS_MAX if left > 0 else 0,
            bytes_max=max(1, min(left, wanted.partition_max_bytes)),
        )
        try:
            return await self._gateway.fetch(
                part.topic.name,
                PartitionNumber(wanted.partition),
                Position(offset=wanted.fetch_offset),
                budget,
                Wait(),
                shares,
                as_kafka=True,
            )
        except OffsetOutOfRange as error:
            part.answer.error_code = code_of(error)
            await self._tell_ends(part)
        except RiachoError as error:
            part.answer.error_code = code_of(error)
        return None

    async def _tell_ends(self, part: FetchPart) -> None:
        """Say where the partition begins and ends, for a client that is out of its range."""
        assert part.topic is not None
        number, local = part.topic.lane_of(PartitionNumber(part.wanted.partition))
        view = self._gateway.lanes.lane(part.topic.topic_id, number).watched.latest
        if view is not None:
            check_width(view.head, local)
            part.tell(view.head.next_offsets[local], view.head.log_starts[local])

    # Answering

    async def _fill(
        self,
        call: KafkaCall,
        parts: Sequence[FetchPart],
        found: Sequence[FetchResult | _AtEnd | None],
        bytes_max: int,
        answers: Answers,
    ) -> None:
        """Put what was found into the answer, at least one batch, then as much as fits."""
        left = bytes_max
        record_count = size_bytes = 0
        for part, result in zip(parts, found, strict=True):
            if isinstance(result, _AtEnd):
                part.tell(*result.ends)
                continue
            if result is None or part.answer.error_code:
                continue
            part.tell(result.high_watermark, result.log_start_offset)
            if size_bytes and left <= 0:
                continue
            limit = min(left, part.wanted.partition_max_bytes)
            pieces = await kafka_bytes_of(self._gateway, result, max(1, limit))
            taken = sum(map(len, pieces))
            if size_bytes and taken > left:
                continue
            code = part.give(pieces, call.version)
            if not code:
                record_count += result.fetched.record_count
                size_bytes += taken
                left -= taken
        if size_bytes:
            await call.caller.quotas.admit_fetch(call.caller, size_bytes)
        self._metrics.fetched(record_count, size_bytes)


def _is_enough(found: Sequence[FetchResult | _AtEnd | None], min_bytes: int) -> bool:
    """Whether nothing is gained by waiting: there is enough, or more than was read."""
    read = [each for each in found if isinstance(each, FetchResult)]
    return sum(each.fetched.size_bytes for each in read) >= min_bytes or any(
        # Its end may be younger than what was read of it; a wait would be for what comes then.
        each.fetched.end_offset < each.high_watermark
        for each in read
    )
