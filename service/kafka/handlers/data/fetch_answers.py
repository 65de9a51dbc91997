"""The answer to a fetch while it is made: a place for each partition that was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from service.kafka.brokers.brokers import LEADER_EPOCH, Brokers
from service.kafka.call import KafkaCall
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from service.log.gateway import FetchResult, Gateway
from storage.formats.kafka import layout
from storage.formats.kafka.compression import COMPRESSIONS
from storage.formats.partitions import PartitionNumber
from storage.reading.fetched import Data
from storage.reading.forms import kafka_bytes
from storage.topics.topics import Topic

ZSTD_SINCE: Final = 10
"""The version of Fetch whose clients know zstd."""

_ZSTD: Final = COMPRESSIONS.index("zstd")


@dataclass(slots=True, kw_only=True)
class FetchPart:
    """A partition that was asked for, and its answer."""

    wanted: FetchPartition
    answer: PartitionData
    topic: Topic | None = None

    def tell(self, high_watermark: int, log_start_offset: int) -> None:
        # Records of a transaction get their offsets when it commits: none is unstable.
        self.answer.high_watermark = self.answer.last_stable_offset = high_watermark
        self.answer.log_start_offset = log_start_offset

    def give(self, pieces: Sequence[Data], version: int) -> ErrorCode:
        """Answer with these batches, if a client of this version can read them."""
        if version < ZSTD_SINCE and _has_zstd(pieces):
            self.answer.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        self.answer.records = list(pieces)
        return ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class Answers:
    is_committed_only: bool
    response: FetchResponse = field(default_factory=FetchResponse)
    parts: list[FetchPart] = field(default_factory=list)

    def add(self, wanted: FetchTopic) -> list[FetchPart]:
        """Return a place for each partition of a topic."""
        made = [
            FetchPart(wanted=each, answer=_unanswered(each, self.is_committed_only))
            for each in wanted.partitions
        ]
        self.response.responses.append(
            FetchableTopicResponse(
                topic=wanted.topic,
                topic_id=wanted.topic_id,
                partitions=[part.answer for part in made],
            )
        )
        self.parts += made
        return made

    def emptied(self, throttle_ms: int) -> FetchResponse:
        """Return the answer without records, for a caller that has used up its quota."""
        self.response.throttle_time_ms = throttle_ms
        for part in self.parts:
            part.answer.records = b""
        return self.response

    async def name_leaders(self, call: KafkaCall, brokers: Brokers) -> None:
        """Name the leaders of the partitions that this gateway does not serve any more."""
        gone = [
            (part, part.topic)
            for part in self.parts
            if part.answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and part.topic is not None
        ]
        if call.version < 12 or not gone:
            return
        leaders = await brokers.leaders(call.client_id)
        named = {}
        for part, topic in gone:
            leader = leaders.of(topic, PartitionNumber(part.wanted.partition))
            named[leader.node_id] = leader
            part.answer.current_leader = FetchLeaderIdAndEpoch(
                leader_id=leader.node_id, leader_epoch=LEADER_EPOCH
            )
        self.response.node_endpoints = [
            FetchNodeEndpoint(node_id=b.node_id, host=b.host, port=b.port, rack=b.zone or None)
            for b in named.values()
        ]


def _unanswered(wanted: FetchPartition, is_committed_only: bool) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=-1,
        aborted_transactions=[] if is_committed_only else None,
        records=b"",
    )


async def kafka_bytes_of(gateway: Gateway, result: FetchResult, bytes_max: int) -> list[Data]:
    """Return what was read as batches, in pieces."""
    work = partial(kafka_bytes, result.fetched, bytes_max)
    # Batches are found by their headers and not copied, so this takes no time for large ones.
    return work()


def _has_zstd(pieces: Sequence[Data]) -> bool:
    """Whether a batch in these pieces is compressed with zstd."""
    joined = b"".join(pieces)
    return any(
        header.attributes & layout.CODEC_BITS == _ZSTD for _, _, header in layout.headers(joined)
    )
