"""The gateway calls of a consumer: offsets and records, as values.

One partition is fetched as Arrow. Several share a request and its wait; they are returned as
JSON, each with its own outcome.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from riacho.consumer.assignment import ReadPlace, Start
from riacho.errors import error_of_document, new_error
from riacho.http import wire
from riacho.http.gateway import ARROW, Gateway, topic_path
from riacho.http.identity import Credentials
from riacho.records import Record, TopicPartition
from storage.errors import Corrupt, OffsetOutOfRange, RiachoError

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    max_bytes: int
    min_bytes: int
    max_wait_ms: int


@dataclass(frozen=True, slots=True)
class Fetched:
    records: Sequence[Record]
    next_offset: int


class LogClient:
    def __init__(
        self,
        url: str,
        limits: FetchLimits,
        timeout_s: float,
        transport: "httpx.AsyncBaseTransport | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.gateway = Gateway(
            url, timeout_s=timeout_s, transport=transport, credentials=credentials
        )
        self._limits = limits
        # The gateway may wait for records first, so this is added to our own timeout.
        self._fetch_timeout_s = timeout_s + limits.max_wait_ms / 1000

    async def partition_count(self, topic: str) -> int:
        reply = await self.gateway.request("GET", topic_path(topic))
        return int(reply.json()["partitions"])

    async def offset_at(self, partition: TopicPartition, at: Start) -> int:
        """Return the offset at `at`; the end of the log if no record is that new."""
        path = topic_path(partition.topic, "partitions", partition.partition, "offsets")
        reply = await self.gateway.request("GET", path, params={"at": at})
        return int(reply.json()["offset"])

    async def fetch(self, places: Sequence[ReadPlace]) -> "Sequence[Fetched | RiachoError]":
        """Return the records at each of `places`, or the error for that place.

        Raises only errors of the request as a whole.
        """
        if len(places) > 1 or not wire.has_arrow():
            return await self._fetch_many(places)
        try:
            return [await self._fetch_one(places[0])]
        except OffsetOutOfRange as error:
            return [error]

    async def close(self) -> None:
        await self.gateway.close()

    async def _fetch_one(self, place: ReadPlace) -> Fetched:
        assert place.offset is not None, place
        topic, partition = place.partition
        reply = await self.gateway.request(
            "GET",
            topic_path(topic, "partitions", partition, "records"),
            params={"offset": place.offset, "offsets": "either", **asdict(self._limits)},
            headers={"accept": ARROW},
            timeout_s=self._fetch_timeout_s,
        )
        try:
            records = wire.decode_arrow(topic, partition, reply.body, place.offset)
            return Fetched(records, int(reply.headers["riacho-next-offset"]))
        except (ValueError, KeyError) as error:
            detail = f"the reply for {place.partition} cannot be read: {error!r}"
            raise new_error(Corrupt, detail) from error

    async def _fetch_many(self, places: Sequence[ReadPlace]) -> "Sequence[Fetched | RiachoError]":
        asked = [
            {"topic": p.partition.topic, "partition": p.partition.partition, "offset": p.offset}
            for p in places
        ]
        reply = await self.gateway.request(
            "POST",
            "/v1/fetch",
            json={"partitions": asked, **asdict(self._limits)},
            timeout_s=self._fetch_timeout_s,
        )
        try:
            parts = {(p["topic"], p["partition"]): p for p in reply.json()["partitions"]}
            return [_fetched(place, parts[place.partition]) for place in places]
        except (ValueError, KeyError, TypeError) as error:
            raise new_error(Corrupt, f"the reply cannot be read: {error!r}") from error


def _fetched(place: ReadPlace, part: dict[str, Any]) -> "Fetched | RiachoError":
    if part.get("error") is not None:
        return error_of_document(part["error"])
    return Fetched(wire.decode_json(*place.partition, part["records"]), part["next_offset"])
