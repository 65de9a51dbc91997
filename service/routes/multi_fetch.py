"""Fetching from several partitions with one wait and one budget of bytes."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from service.http import problems
from service.http.answer_size import AnswerSize, Body, body_of
from service.http.bodies.fields import Count, Offset, PartitionNumber
from service.http.bodies.json_fetch import FetchedRecord, ValueFormat, json_pieces
from service.http.bodies.schema_fetch import SchemaLookup
from service.http.metrics import Metrics
from service.http.requests import parse_place
from service.log.gateway import FetchResult, Gateway, Position, Wait
from service.process.limits.outgoing import RequestShares
from service.registry.edge.late import CallersSchemas, LateSchemas, with_schemas
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage.errors import InvalidRequest, OffsetOutOfRange, RecordTooLarge, RiachoError
from storage.reading.fetched import Batches, Budget, Data

FETCHES_AT_ONCE: Final = 16
"""Number of partitions of one `POST /v1/fetch` that are read concurrently. More would read beyond
the budget, fewer would wait for the store more often."""

ITEM_BYTES: Final = 1024
"""Maximum size of a partition in an answer besides its records: names, offsets, an error."""

NO_RESETS: Final[Mapping[tuple[str, PartitionNumber], Position]] = {}


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """One partition of a `POST /v1/fetch`."""

    topic: str
    partition: PartitionNumber
    offset: int | None = None
    at: int | str | None = None
    max_bytes: Count | None = None

    def position(self) -> Position:
        if self.offset is not None and self.at is not None:
            raise InvalidRequest("give offset or at, not both")
        if self.offset is not None:
            return Position(offset=self.offset)
        return Position(at=parse_place(str("earliest" if self.at is None else self.at)))


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    partitions: Annotated[list[Wanted], msgspec.Meta(extra_json_schema={"minItems": 1})]
    max_records: Count | None = None
    max_bytes: Count | None = None
    min_bytes: Offset = 1
    max_wait_ms: Offset = 0
    value_format: ValueFormat = "text"


class Ends(msgspec.Struct):
    """Where an answer and its partition end; it follows the records, which are encoded apart."""

    next_offset: int
    high_watermark: int
    log_start_offset: int


class FetchedRecords(Ends):
    """Records of one partition."""

    records: list[FetchedRecord]


class FetchedPartition(msgspec.Struct):
    """Records of one of several partitions, or why there are none."""

    topic: str  # As the caller named it, perhaps wrongly.
    partition: int
    records: list[FetchedRecord] | UnsetType = UNSET
    next_offset: int | UnsetType = UNSET
    high_watermark: int | UnsetType = UNSET
    log_start_offset: int | UnsetType = UNSET
    error: problems.Problem | UnsetType = UNSET


class FetchedPartitions(msgspec.Struct):
    partitions: list[FetchedPartition]


@dataclass(slots=True)
class _Left:
    """Remaining limits of an answer."""

    bytes: int
    records: int
    size: AnswerSize
    """For JSON."""
    is_empty: bool = True

    def take(self, body: Body) -> None:
        if body.record_count:
            self.is_empty = False
            self.bytes -= body.size_bytes
            self.records -= body.record_count
            self.size = self.size.without(body.body_bytes)


class MultiFetch:
    def __init__(self, gateway: Gateway, metrics: Metrics, schemas: LateSchemas) -> None:
        self._gateway = gateway
        self._metrics = metrics
        self._schemas = schemas

    async def fetch(
        self,
        body: FetchBody,
        request_id: str,
        shares: RequestShares,
        caller: Caller,
        resets: Mapping[tuple[str, PartitionNumber], Position] = NO_RESETS,
    ) -> list[Data]:
        """Return pieces of the JSON array of what was found, waiting for `min_bytes` of it.

        A partition that `caller` may not read has an error. An offset out of range is no error if
        `resets` has a position for its partition.
        """
        bytes_max = caller.quotas.fetch_bytes_max(caller)
        if bytes_max is not None:
            body.max_bytes = min(bytes_max, body.max_bytes or bytes_max)
        with caller.quotas.open_wait(caller, body.max_wait_ms):
            return await self._fetch(body, request_id, shares, caller, resets)

    async def _fetch(
        self,
        body: FetchBody,
        request_id: str,
        shares: RequestShares,
        caller: Caller,
        resets: Mapping[tuple[str, PartitionNumber], Position],
    ) -> list[Data]:
        refusals = _refusals(body, caller)
        poll = self._gateway.long_poll(body.max_wait_ms / 1000)
        positions: list[Position | None] = [None] * len(body.partitions)
        while True:
            results = await self._fetch_each(body, positions, resets, shares, refusals)
            good = [result for result in results if isinstance(result, FetchResult)]
            for number, result in enumerate(results):
                if isinstance(result, FetchResult):
                    # "latest" means the end at the time of the call, not of the last read.
                    positions[number] = Position(offset=result.fetched.start_offset)
            left_s = poll.left_s
            if (
                sum(result.fetched.size_bytes for result in good) >= body.min_bytes
                # An end may be younger than what was read of it; a wait is for what comes then.
                or any(r.fetched.end_offset < r.high_watermark for r in good)
                or len(good) < len(results)
                or left_s == 0
            ):
                return await self._json(body, results, request_id, caller)
            shares.release_all()
            await self._gateway.changed([result.watch for result in good], left_s)
            await caller.renew()
            refusals = _refusals(body, caller)

    async def _fetch_each(
        self,
        body: FetchBody,
        positions: Sequence[Position | None],
        resets: Mapping[tuple[str, PartitionNumber], Position],
        shares: RequestShares,
        refusals: Mapping[str, RiachoError],
    ) -> list[FetchResult | RiachoError]:
        """Fetch from all partitions, some at a time, until the budget is used up."""
        settings = self._gateway.settings
        left = min(body.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max)
        records = min(
            body.max_records or settings.fetch_records_default, settings.fetch_records_max
        )
        results: list[FetchResult | RiachoError] = []
        for start in range(0, len(body.partitions), FETCHES_AT_ONCE):
            wave = await asyncio.gather(
                *(
                    self._fetch_one(
                        wanted,
                        positions[start + number],
                        Budget(
                            records_max=records if left > 0 else 0,
                            bytes_max=min(left, wanted.max_bytes or left),
                        ),
                        resets.get((wanted.topic, wanted.partition)),
                        shares,
                        refusals.get(wanted.topic),
                    )
                    for number, wanted in enumerate(
                        body.partitions[start : start + FETCHES_AT_ONCE]
                    )
                )
            )
            left -= sum(r.fetched.size_bytes for r in wave if isinstance(r, FetchResult))
            results += wave
        return results

    async def _fetch_one(
        self,
        wanted: Wanted,
        position: Position | None,
        budget: Budget,
        reset: Position | None,
        shares: RequestShares,
        refusal: RiachoError | None = None,
    ) -> FetchResult | RiachoError:
        if refusal is not None:
            return refusal
        try:
            position = position or wanted.position()
            return await self._gateway.fetch(
                wanted.topic, wanted.partition, position, budget, Wait(), shares
            )
        except OffsetOutOfRange as error:
            if reset is None:
                return error
            return await self._fetch_one(wanted, reset, budget, None, shares)
        except RiachoError as error:
            return error

    async def _json(
        self,
        body: FetchBody,
        results: Sequence[FetchResult | RiachoError],
        request_id: str,
        caller: Caller,
    ) -> list[Data]:
        settings = self._gateway.settings
        left = _Left(
            bytes=min(body.max_bytes or settings.fetch_bytes_default, settings.fetch_bytes_max),
            records=min(
                body.max_records or settings.fetch_records_default, settings.fetch_records_max
            ),
            size=AnswerSize.of(settings).without(ITEM_BYTES * len(results)),
        )
        items: list[Data] = []
        record_count = 0
        schemas = self._schemas.of(caller)
        for wanted, result in zip(body.partitions, results, strict=True):
            place = FetchedPartition(caller.outer_name(wanted.topic), wanted.partition)
            try:
                if isinstance(result, RiachoError):
                    raise result
                found = await self._item(result, wanted, left, body.value_format, schemas)
            except RiachoError as error:
                place.error = problems.document(error, request_id, caller)
                items += [b",", msgspec.json.encode(place)]
            else:
                left.take(found)
                record_count += found.record_count
                first, *others = found.pieces
                items += [b",", msgspec.json.encode(place)[:-1], b",", first[1:], *others]
        pieces = [b"[", *items[1:], b"]"]
        size_bytes = sum(map(len, pieces))
        if record_count:
            await caller.quotas.admit_fetch(caller, size_bytes)
        self._metrics.fetched(record_count, size_bytes)
        return pieces

    async def _item(
        self,
        result: FetchResult,
        wanted: Wanted,
        left: _Left,
        value_format: ValueFormat,
        schemas: CallersSchemas,
    ) -> Body:
        """Return the records of one partition that fit into the answer.

        Raises `RecordTooLarge` if its first record does not fit, and the answer has no records yet.
        """

        def encoded(bytes_max: int) -> Body:
            batches: Batches = []
            # Do not decode what will not be sent.
            if bytes_max > 0 and left.records > 0:
                batches = _first_records(result.fetched.batches(bytes_max), left.records)
            return body_of(result, batches, fetched_json(result, batches, value_format, schemas))

        async def encode(bytes_max: int) -> Body:
            size_bytes = min(bytes_max, result.fetched.memory_bytes)
            return await with_schemas(
                self._gateway.heavy_work, size_bytes, lambda: encoded(bytes_max), schemas
            )

        affordable = min(left.bytes, wanted.max_bytes or left.bytes, result.share.size_bytes)
        try:
            return await left.size.fitted(encode, affordable, result)
        except RecordTooLarge:
            if left.is_empty:
                raise
            return await encode(0)


def _refusals(body: FetchBody, caller: Caller) -> dict[str, RiachoError]:
    """Return an error for each topic that the caller may not read."""
    refusals: dict[str, RiachoError] = {}
    for topic in {wanted.topic for wanted in body.partitions}:
        decision = caller.decide(Operation.READ, ResourceType.TOPIC, topic)
        if not decision.allowed:
            refusals[topic] = caller.refusal(Operation.READ, ResourceType.TOPIC, topic, decision)
    return refusals


def _first_records(batches: Batches, count: int) -> Batches:
    """Return `batches` cut after `count` records."""
    cut = []
    for offsets, batch in batches:
        if count <= 0:
            break
        cut.append((offsets[:count], batch.slice(0, count)))
        count -= batch.num_rows
    return cut


def fetched_json(
    result: FetchResult,
    batches: Batches,
    value_format: ValueFormat,
    schemas: SchemaLookup | None,
) -> list[Data]:
    """Return pieces that, concatenated, are the JSON object of what was fetched.

    The last piece is what follows the records.
    """
    rest = fetched_rest(result, result.fetched.end_of(batches))
    return [b'{"records":', *json_pieces(batches, value_format=value_format, schemas=schemas), rest]


def fetched_rest(result: FetchResult, next_offset: int) -> bytes:
    """Return what follows the records in the JSON of one partition."""
    ends = Ends(next_offset, result.high_watermark, result.log_start_offset)
    return b"," + msgspec.json.encode(ends)[1:]
