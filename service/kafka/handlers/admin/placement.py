"""DescribeLogDirs, ElectLeaders and ListPartitionReassignments: where partitions are.

A gateway has no disk of records: all that is stored is one directory, called `riacho`. Programs
ask every broker and add up, so each reports the partitions that it leads for this client, and no
others. Leaders are computed, so there is none to elect, and no reassignment of brokers to list.
"""

from collections.abc import Sequence
from typing import Final

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.answers import Judged
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.placement import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReplicaElectionResult,
)
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage import keys
from storage.errors import RiachoError, UnknownTopicOrPartition
from storage.head import head as heads
from storage.tasks import in_turns
from storage.topics.topics import Topic

LOG_DIR: Final = "riacho"
HEADS_AT_ONCE: Final = 100


class PlacementAdmin:
    def __init__(self, parts: Parts) -> None:
        self._gateway = parts.gateway
        self._brokers = parts.brokers

    async def describe_log_dirs(
        self, call: KafkaCall, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        with Judged(call.caller) as judged:
            call.caller.require(Operation.DESCRIBE, ResourceType.CLUSTER)
            found = await self._led(call, request)
            return DescribeLogDirsResponse(
                results=[DescribeLogDirsResult(log_dir=LOG_DIR, topics=found)]
            )
        # Before version 3 a response without directories says that the caller may not.
        return DescribeLogDirsResponse(error_code=judged.code)

    async def _led(
        self, call: KafkaCall, request: DescribeLogDirsRequest
    ) -> list[DescribeLogDirsTopic]:
        """Return the sizes of the partitions that are asked for and that this broker leads."""
        leaders = await self._brokers.leaders(call.client_id)
        own = self._brokers.own.node_id
        wanted = await self._wanted(call.caller, request)
        lanes = [
            (topic, lane)
            for topic, _ in wanted
            for lane in topic.lanes
            if leaders.of_lane(topic, lane).node_id == own
        ]
        sizes: dict[tuple[str, int], Sequence[int]] = {}
        for start in range(0, len(lanes), HEADS_AT_ONCE):
            some = {keys.head(t.topic_id, n): (t.name, n) for t, n in lanes[start:][:HEADS_AT_ONCE]}
            for key, item in (await self._gateway.metadata.get_many(list(some))).items():
                sizes[some[key]] = heads.decode(item.value, key).sizes
        found = []
        for topic, partitions in wanted:
            shown = []
            for partition in topic.partitions:
                lane, local = topic.lane_of(partition)
                of_lane = sizes.get((topic.name, lane), ())
                if (partitions is None or partition in partitions) and local < len(of_lane):
                    shown.append(
                        DescribeLogDirsPartition(
                            partition_index=partition, partition_size=of_lane[local]
                        )
                    )
            if shown:
                name = call.caller.outer_name(topic.name)
                found.append(DescribeLogDirsTopic(name=name, partitions=shown))
        return found

    async def _wanted(
        self, caller: Caller, request: DescribeLogDirsRequest
    ) -> list[tuple[Topic, frozenset[int] | None]]:
        """Return the topics that are asked for, with partitions; None: all."""
        if request.topics is None:
            return [(topic, None) for topic in await self._gateway.topics.all()]
        found: list[tuple[Topic, frozenset[int] | None]] = []
        async for each in in_turns(request.topics):
            try:
                topic = await self._gateway.topics.get(caller.inner_name(each.topic))
            except RiachoError as error:
                if isinstance(error, UnknownTopicOrPartition) or not error.retryable:
                    continue  # Kafka leaves out what is not there.
                raise
            found.append((topic, frozenset(each.partitions)))
        return found

    async def elect_leaders(
        self, call: KafkaCall, request: ElectLeadersRequest
    ) -> ElectLeadersResponse:
        response = ElectLeadersResponse()
        with Judged(call.caller) as judged:
            call.caller.require(Operation.ALTER, ResourceType.CLUSTER)
            # Without names, Kafka reports only the partitions that need an election.
            response.replica_election_results = [
                await self._not_elected(call.caller, each)
                async for each in in_turns(request.topic_partitions or ())
            ]
        response.error_code = judged.code
        return response

    async def _not_elected(
        self, caller: Caller, wanted: ElectLeadersTopicPartitions
    ) -> ReplicaElectionResult:
        results = []
        async for partition in in_turns(wanted.partitions):
            code, text = ErrorCode.ELECTION_NOT_NEEDED, "any broker leads any partition"
            with Judged(caller) as judged:
                topic = await self._gateway.topics.get(caller.inner_name(wanted.topic))
                topic.check_partition(partition)
            if not judged.is_done:
                code, text = judged.code, judged.text or ""
            results.append(
                ElectLeadersPartitionResult(
                    partition_id=partition, error_code=code, error_message=text
                )
            )
        return ReplicaElectionResult(topic=wanted.topic, partition_result=results)

    async def list_reassignments(
        self, call: KafkaCall, _: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        with Judged(call.caller) as judged:
            call.caller.require(Operation.DESCRIBE, ResourceType.CLUSTER)
        return ListPartitionReassignmentsResponse(error_code=judged.code, error_message=judged.text)
