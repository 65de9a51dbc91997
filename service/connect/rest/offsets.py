"""Calls about how far connectors have read: positions of sources, offsets of sinks.

Of a sink whose target holds the offsets, a change is kept until a task runs, and tells the target.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.connect.rest import views
from service.connect.rest.answers import answer, caller_in, connector_in, read_as
from service.connect.rest.bodies import ConnectorOffsetBody, ConnectorOffsetsBody
from service.connect.rest.errors import ConnectError, bad_request, not_stopped
from service.connect.rest.stopped import EpochGuard, next_epoch, wait_for_end
from service.connect.rest.store import ConnectorStore
from service.connect.tasks.items import (
    STOPPED,
    ConnectorItem,
    OffsetItem,
    canonical,
    digest_of,
    encode_offset,
    group_of,
    sink_partition,
)
from service.connect.tasks.offsets import StoredOffsets
from service.connect.tasks.partitions import places_of
from service.groups.offsets import Commit, Offsets
from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from service.transactions.atomic import Atomic
from service.transactions.commit import GroupCommit
from storage import keys
from storage.cas import retry
from storage.errors import GroupNotEmpty, InvalidTopic, UnknownGroup, UnknownTopicOrPartition
from storage.formats.partitions import PartitionNumber
from storage.stores.metadata import TRANSACT_OPS_MAX, Delete, Op, Put

OFFSETS_MAX: Final = 10_000
"""Maximum number of offsets in one call."""

POSITION_BYTES_MAX: Final = 16 * 1024

_BODY: Final = msgspec.json.Decoder(ConnectorOffsetsBody)
_SINK_FIELDS: Final = {"kafka_topic", "kafka_partition"}


class OffsetCalls:
    def __init__(self, gateway: Gateway, store: ConnectorStore, offsets: Offsets) -> None:
        self._gateway = gateway
        self._store = store
        self._offsets = offsets
        self._atomic = Atomic(gateway, offsets)

    async def show(self, request: Request) -> Response:
        """Show how far a connector has read."""
        connector = await self._store.read(connector_in(request))
        return answer({"offsets": await self._all(connector)})

    async def _all(self, connector: ConnectorItem) -> list[dict[str, Any]]:
        if views.kind_of(connector) == "sink":
            prefix = connector.name_prefix
            return [
                {
                    "partition": {
                        "kafka_topic": each.topic.removeprefix(prefix),
                        "kafka_partition": each.partition,
                    },
                    "offset": {"kafka_offset": each.offset},
                }
                for each in await self._offsets.read(group_of(connector))
            ]
        found = await StoredOffsets(self._gateway.metadata, connector.name).all()
        return [{"partition": partition, "offset": offset} for partition, offset in found]

    async def change(self, request: Request) -> Response:
        """Set how far a stopped connector has read; null forgets it for a partition."""
        given = (await read_as(request, self._gateway, _BODY)).offsets
        if not given:
            raise bad_request(
                "Partitions / offsets need to be provided for an alter offsets request"
            )
        if len(given) > OFFSETS_MAX:
            raise bad_request(f"offsets: {len(given)} in one call, the limit is {OFFSETS_MAX}")
        connector = await self._stopped(request)
        if views.kind_of(connector) == "sink":
            await self._change_group(connector, given)
        else:
            await self._change_positions(connector, given)
        return self._changed(request, connector, "altered")

    async def reset(self, request: Request) -> Response:
        """Forget how far a stopped connector has read: it begins anew."""
        connector = await self._stopped(request)
        if views.kind_of(connector) == "sink":
            await self._reset_group(connector)
        else:
            found = await StoredOffsets(self._gateway.metadata, connector.name).all()
            await self._write_positions(connector, {canonical(each): None for each, _ in found})
        return self._changed(request, connector, "reset")

    def _changed(self, request: Request, connector: ConnectorItem, verb: str) -> Response:
        caller_in(request).changed(Operation.ALTER, ResourceType.CONNECTOR, connector.name)
        message = f"The offsets for this connector have been {verb} successfully"
        return answer({"message": message})

    async def _stopped(self, request: Request) -> ConnectorItem:
        connector = await self._store.read(connector_in(request))
        if connector.target != STOPPED:
            raise not_stopped(caller_in(request).outer_name(connector.name))
        await wait_for_end(self._gateway.metadata, self._store.world, connector)
        return connector

    async def _change_positions(
        self, connector: ConnectorItem, given: Sequence[ConnectorOffsetBody]
    ) -> None:
        wanted: dict[bytes, bytes | None] = {}
        for number, each in enumerate(given):
            if not each.partition:
                raise bad_request(f"offsets[{number}]: The partition must not be null or empty")
            partition = canonical(each.partition)
            offset = None if each.offset is None else canonical(each.offset)
            if len(partition) + len(offset or b"") > POSITION_BYTES_MAX:
                raise bad_request(f"offsets[{number}]: more than {POSITION_BYTES_MAX} bytes")
            if wanted.setdefault(partition, offset) != offset:
                raise bad_request(f"offsets[{number}]: the partition is given twice")
        await self._write_positions(connector, wanted)

    async def _write_positions(
        self, connector: ConnectorItem, wanted: dict[bytes, bytes | None]
    ) -> None:
        """Write positions, each transaction only if the connector is still stopped.

        Each begins an epoch, also if there is nothing to write.
        """
        places = list(wanted.items())
        for start in range(0, max(1, len(places)), TRANSACT_OPS_MAX - 1):
            some = dict(places[start : start + TRANSACT_OPS_MAX - 1])
            await self._write_some(connector, some)

    async def _write_some(
        self, connector: ConnectorItem, wanted: dict[bytes, bytes | None]
    ) -> None:
        metadata, now_ms = self._gateway.metadata, self._store.world.now_ms()
        connector_key = keys.connector(connector.name)
        by_key = {keys.connect_offset(connector.name, digest_of(each)): each for each in wanted}

        async def attempt(_: bool) -> None:
            found = await metadata.get_many([connector_key, *by_key])
            ops: list[Op] = [next_epoch(connector, found.get(connector_key))]
            for key, partition in by_key.items():
                offset, stored = wanted[partition], found.get(key)
                version = None if stored is None else stored.version
                if offset is not None:
                    item = OffsetItem(connector.name, partition, offset, now_ms)
                    ops.append(Put(key, encode_offset(item), version))
                elif version is not None:
                    ops.append(Delete(key, version))
            await metadata.transact(ops)

        await retry(f"the positions of {connector.name!r}", attempt, self._store.world.patience)

    async def _change_group(
        self, connector: ConnectorItem, given: Sequence[ConnectorOffsetBody]
    ) -> None:
        group, prefix = group_of(connector), connector.name_prefix
        commits: list[Commit] = []
        gone: list[tuple[str, PartitionNumber]] = []
        for number, each in enumerate(given):
            topic, partition = _sink_partition(number, each.partition)
            if each.offset is None:
                gone.append((prefix + topic, partition))
            else:
                offset = _sink_offset(number, each.offset)
                commits.append(Commit(topic=prefix + topic, partition=partition, offset=offset))
        told: dict[tuple[str, int], int | None] = dict.fromkeys(gone)
        told.update({(each.topic, each.partition): each.offset for each in commits})
        if len(told) < len(given):
            raise bad_request("a partition is given twice")
        try:
            if commits:
                await self._offsets.planned(group, commits, None)
            # First what a target is told: it begins an epoch, so what is late undoes nothing.
            await self._tell(connector, told)
            if commits:
                await self._atomic.write(
                    [],
                    0,
                    GroupCommit(group_id=group, commits=commits, committer=None),
                    EpochGuard(self._gateway.metadata, connector),
                )
            if gone:
                with suppress(UnknownGroup):
                    await self._offsets.forget(group, gone)
        except (UnknownTopicOrPartition, InvalidTopic) as error:
            raise bad_request(str(error)) from None
        except GroupNotEmpty as error:
            raise ConnectError(409, str(error)) from None

    async def _reset_group(self, connector: ConnectorItem) -> None:
        prefix = connector.name_prefix
        committed = await self._offsets.read(group_of(connector))
        places: set[tuple[str, int]] = {(each.topic, each.partition) for each in committed}
        if views.holds_positions(connector):
            # The target may hold what was never committed for the group.
            places |= {
                (prefix + each.topic, each.partition)
                for each in await places_of(self._gateway, connector)
            }
        await self._tell(connector, dict.fromkeys(places))
        await self._store.delete_group(connector)

    async def _tell(
        self, connector: ConnectorItem, wanted: dict[tuple[str, int], int | None]
    ) -> None:
        """Begin an epoch, and keep for a target that holds the offsets what it is to be told."""
        prefix, told = connector.name_prefix, dict[bytes, bytes | None]()
        if views.holds_positions(connector):
            for (topic, partition), offset in wanted.items():
                place = sink_partition(topic.removeprefix(prefix), partition)
                told[canonical(place)] = canonical({"kafka_offset": offset})
        await self._write_positions(connector, told)


def _sink_partition(number: int, given: dict[str, Any] | None) -> tuple[str, PartitionNumber]:
    partition = given or {}
    topic = partition.get("kafka_topic")
    text = str(partition.get("kafka_partition", ""))
    if partition.keys() != _SINK_FIELDS or not isinstance(topic, str) or not _is_number(text):
        raise bad_request(
            f"offsets[{number}]: The partition for a sink connector offset must have the keys"
            " 'kafka_topic' and 'kafka_partition'"
        )
    return topic, PartitionNumber(int(text))


def _sink_offset(number: int, given: dict[str, Any]) -> int:
    text = str(given.get("kafka_offset", ""))
    if given.keys() != {"kafka_offset"} or not _is_number(text):
        raise bad_request(
            f"offsets[{number}]: The offset for a sink connector should either be null or contain"
            " the key 'kafka_offset' with a number from 0"
        )
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
