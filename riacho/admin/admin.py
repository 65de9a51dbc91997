"""Administration: topics, partitions, groups, transactions, security and the cluster.

Nothing here is retried: an administrator wants to see a failure at once. The flags of the error
say whether a retry is safe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from riacho.admin.groups import AsyncGroupAdmin, GroupAdmin
from riacho.admin.security import AsyncSecurityAdmin, SecurityAdmin
from riacho.admin.throttled import ThrottledGateway
from riacho.admin.transactions import AsyncTransactionAdmin, TransactionAdmin
from riacho.consumer.assignment import Start
from riacho.http.gateway import gateway_url, topic_path
from riacho.http.identity import Basic, ClientCert, Credentials
from riacho.http.replies import parsed

if TYPE_CHECKING:
    import httpx

Config: TypeAlias = Mapping[str, str | int | float]
Cluster: TypeAlias = dict[str, Any]
"""Gateways, zones, controller and version, as the gateway lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    id: str
    partitions: int
    replication_factor: int
    config: dict[str, str]
    """Every setting, defaults included, by Kafka's names."""
    created_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    partition: int
    leader: str | None
    leader_epoch: int
    replicas: list[str]
    isr: list[str]
    log_start_offset: int
    high_watermark: int
    """The offset that the next record will get."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    partition: int
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndTimestamp:
    offset: int
    timestamp: int
    """Of the record at the offset; -1 if there is none."""


class AsyncAdmin(AsyncGroupAdmin, AsyncTransactionAdmin, AsyncSecurityAdmin):
    """Manages topics, groups, transactions, keys and ACLs; for programs with an event loop.

        async with AsyncAdmin("http://127.0.0.1:8080") as admin:
            await admin.create_topic("orders", partitions=3, config={"retention.ms": 3600000})
            for topic in await admin.list_topics():
                print(topic.name, topic.partitions)

    Settings have Kafka's names, and errors the classes of `riacho.errors`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        request_timeout_ms: float = 30_000,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        self._gateway = ThrottledGateway(
            gateway_url(url),
            timeout_s=request_timeout_ms / 1000,
            transport=transport,
            credentials=Credentials(
                token=token, basic=basic, ca_file=ca_file, client_cert=client_cert
            ),
        )

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Config | None = None,
    ) -> Topic:
        """Create a topic; `config` uses Kafka's names. Raises `TopicExists` if it does."""
        body = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replication_factor,
            "config": dict(config or {}),
        }
        return parsed(await self._gateway.request("POST", "/v1/topics", json=body), Topic)

    async def list_topics(self) -> list[Topic]:
        """Return all topics, by name."""
        reply = await self._gateway.request("GET", "/v1/topics")
        return parsed(reply, list[Topic], "topics")

    async def describe_topic(self, topic: str) -> Topic:
        """Return one topic, or raise `UnknownTopicOrPartition`."""
        return parsed(await self._gateway.request("GET", topic_path(topic)), Topic)

    async def partitions(self, topic: str) -> list[PartitionInfo]:
        """Return where every partition begins, ends and lives."""
        reply = await self._gateway.request("GET", topic_path(topic, "partitions"))
        return parsed(reply, list[PartitionInfo], "partitions")

    async def alter_topic(
        self,
        topic: str,
        partitions: int | None = None,
        config: Mapping[str, str | int | float | None] | None = None,
        replication_factor: int | None = None,
        replicas: Sequence[str] | None = None,
    ) -> Topic:
        """Add partitions, change settings; None as a setting returns it to its default.

        With more partitions, new records of a key may go to another one than old records.
        `replicas` names the zones that are to hold the topic, `replication_factor` only how many.
        Stored records are then copied in the background; `partitions` shows the progress.
        """
        change: dict[str, Any] = {"config": dict(config or {})}
        if partitions is not None:
            change["partitions"] = partitions
        if replication_factor is not None:
            change["replication_factor"] = replication_factor
        if replicas is not None:
            change["replicas"] = list(replicas)
        reply = await self._gateway.request("PATCH", topic_path(topic), json=change)
        return parsed(reply, Topic)

    async def delete_topic(self, topic: str, *, shred: bool = False) -> None:
        """Delete a topic and every record in it.

        `shred` also destroys the keys of an encrypted topic, so that nobody can read what is still
        stored; a topic that is not encrypted is refused.
        """
        params = {"shred": "true"} if shred else None
        await self._gateway.request("DELETE", topic_path(topic), params=params)

    async def delete_records(
        self, topic: str, before: Mapping[int, int | Literal["latest"]]
    ) -> dict[int, int]:
        """Delete the records before an offset, by partition; "latest": all that are there.

        Return where each partition begins now. Raises `OffsetOutOfRange` for an offset beyond
        the end, and `PolicyViolation` if the topic is only compacted.
        """
        wanted = [{"partition": p, "before_offset": offset} for p, offset in before.items()]
        reply = await self._gateway.request(
            "POST", topic_path(topic, "delete-records"), json={"partitions": wanted}
        )
        starts = parsed(reply, list[LogStart], "partitions")
        return {each.partition: each.log_start_offset for each in starts}

    async def offsets(self, topic: str, partition: int, at: Start) -> OffsetAndTimestamp:
        """Return the offset at "earliest", "latest", or the first of a time in ms."""
        path = topic_path(topic, "partitions", partition, "offsets")
        reply = await self._gateway.request("GET", path, params={"at": at})
        return parsed(reply, OffsetAndTimestamp)

    async def cluster(self) -> Cluster:
        """Return the gateways, zones and controller."""
        return parsed(await self._gateway.request("GET", "/v1/cluster"), Cluster)

    async def close(self) -> None:
        """Disconnect."""
        await self._gateway.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


class Admin(GroupAdmin, TransactionAdmin, SecurityAdmin):
    """Manages topics, groups, transactions, keys and ACLs; without an event loop.

        with Admin("http://127.0.0.1:8080") as admin:
            admin.create_topic("orders", partitions=3, config={"retention.ms": 3600000})
            for topic in admin.list_topics():
                print(topic.name, topic.partitions)

    Every method is as in `AsyncAdmin`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        request_timeout_ms: float = 30_000,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        self._admin: AsyncAdmin = AsyncAdmin(
            url,
            request_timeout_ms=request_timeout_ms,
            token=token,
            basic=basic,
            ca_file=ca_file,
            client_cert=client_cert,
            transport=transport,
        )
        super().__init__()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Config | None = None,
    ) -> Topic:
        """Create a topic; `config` uses Kafka's names. Raises `TopicExists` if it does."""
        return self._run(self._admin.create_topic(name, partitions, replication_factor, config))

    def list_topics(self) -> list[Topic]:
        """Return all topics, by name."""
        return self._run(self._admin.list_topics())

    def describe_topic(self, topic: str) -> Topic:
        """Return one topic, or raise `UnknownTopicOrPartition`."""
        return self._run(self._admin.describe_topic(topic))

    def partitions(self, topic: str) -> list[PartitionInfo]:
        """Return where every partition begins, ends and lives."""
        return self._run(self._admin.partitions(topic))

    def alter_topic(
        self,
        topic: str,
        partitions: int | None = None,
        config: Mapping[str, str | int | float | None] | None = None,
        replication_factor: int | None = None,
        replicas: Sequence[str] | None = None,
    ) -> Topic:
        """Add partitions, change settings; None as a setting returns it to its default."""
        return self._run(
            self._admin.alter_topic(topic, partitions, config, replication_factor, replicas)
        )

    def delete_topic(self, topic: str, *, shred: bool = False) -> None:
        """Delete a topic and every record in it; `shred`: and the keys of an encrypted one."""
        self._run(self._admin.delete_topic(topic, shred=shred))

    def delete_records(
        self, topic: str, before: Mapping[int, int | Literal["latest"]]
    ) -> dict[int, int]:
        """Delete the records before an offset, by partition; "latest": all that are there."""
        return self._run(self._admin.delete_records(topic, before))

    def offsets(self, topic: str, partition: int, at: Start) -> OffsetAndTimestamp:
        """Return the offset at "earliest", "latest", or the first of a time in ms."""
        return self._run(self._admin.offsets(topic, partition, at))

    def cluster(self) -> Cluster:
        """Return the gateways, zones and controller."""
        return self._run(self._admin.cluster())

    async def _aclose(self) -> None:
        await self._admin.close()
