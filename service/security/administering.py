"""Changes of topics as every door makes them: charged to the caller's quota, and recorded.

A door translates what was asked and checks, by its own rules, what the caller may do; names are
full names here.
"""

from collections.abc import Callable, Mapping, Sequence

from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from storage.errors import InvalidConfig
from storage.topics.config import TopicConfig
from storage.topics.schema_rules import PARTS, Strategy
from storage.topics.topics import ConfigChange, Topic


def require_create(caller: Caller, name: str) -> None:
    """Raise unless the caller may create the topic: any topic, as in Kafka, or this one."""
    may_create_any = caller.allows(Operation.CREATE, ResourceType.CLUSTER)
    if not (may_create_any and caller.has_in_scope(Operation.CREATE, name)):
        caller.require(Operation.CREATE, ResourceType.TOPIC, name)


def require_own_subjects(caller: Caller, config: ConfigChange) -> None:
    """Raise if a tenant names subjects by settings, which know nothing of its prefix.

    Subjects that are named after a topic have the prefix of the topic.
    """
    if not caller.name_prefix:
        return
    for part in PARTS:
        is_by_record = config.get(f"confluent.{part}.subject.name.strategy") == Strategy.RECORD
        if config.get(f"{part}.schema.subject") or is_by_record:
            raise InvalidConfig(
                f"config: with a name prefix, leave {part}.schema.subject out, and use"
                f" {Strategy.TOPIC} or {Strategy.TOPIC_RECORD}: their subjects have the prefix"
            )


async def create_topic(
    gateway: Gateway,
    caller: Caller,
    name: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    config: Mapping[str, object] | None = None,
    dry_run: bool = False,
    caps_in_sync_min: bool = False,
) -> Topic:
    """Create a topic if the caller may; with `dry_run`, only check that it could be."""
    require_create(caller, name)
    require_own_subjects(caller, config or {})
    if not dry_run:
        await caller.quotas.admit_mutations(caller, max(1, partitions))
    topic = await gateway.topics.create(
        name,
        partitions=partitions,
        replication_factor=replication_factor,
        config=config,
        dry_run=dry_run,
        caps_in_sync_min=caps_in_sync_min,
    )
    if not dry_run:
        caller.changed(Operation.CREATE, ResourceType.TOPIC, name)
    return topic


async def alter_topic(
    gateway: Gateway,
    caller: Caller,
    name: str,
    *,
    partitions: int | None = None,
    config: ConfigChange | Callable[[TopicConfig], ConfigChange] | None = None,
    replication_factor: int | None = None,
    replicas: Sequence[str] | None = None,
    dry_run: bool = False,
    caps_in_sync_min: bool = False,
) -> Topic:
    """Add partitions, change settings, move replicas; with `dry_run`, only check."""

    def change(now: TopicConfig) -> ConfigChange:
        made = config(now) if callable(config) else config or {}
        require_own_subjects(caller, made)
        return made

    if not dry_run:
        await _admit_added(gateway, caller, name, partitions)
    altered = await gateway.topics.alter(
        name,
        partitions=partitions,
        config=None if config is None else change,
        replication_factor=replication_factor,
        replicas=replicas,
        dry_run=dry_run,
        caps_in_sync_min=caps_in_sync_min,
    )
    if not dry_run:
        caller.changed(Operation.ALTER, ResourceType.TOPIC, name)
    return altered


async def _admit_added(gateway: Gateway, caller: Caller, name: str, partitions: int | None) -> None:
    """Count the partitions that are to be added, if that is limited."""
    if partitions is not None and caller.quotas.limits_of(caller) is not None:
        added = partitions - (await gateway.topics.read(name)).partition_count
        if added > 0:
            await caller.quotas.admit_mutations(caller, added)


async def delete_topic(
    gateway: Gateway,
    caller: Caller,
    name: str,
    *,
    shred: bool = False,
    only_id: bytes | None = None,
) -> Topic:
    """Delete a topic and everything in it; with `only_id`, unless another has its name by now."""
    if caller.quotas.limits_of(caller) is not None:
        found = await gateway.topics.read(name)
        await caller.quotas.admit_mutations(caller, found.partition_count)
    deleted = await gateway.topics.delete(name, shred=shred, only_id=only_id)
    gateway.forget(deleted.topic_id)
    caller.changed(Operation.DELETE, ResourceType.TOPIC, name)
    return deleted
