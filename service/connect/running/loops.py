"""The loop that a task of a connector needs: that of a source or of a sink."""

from service.connect.access.registry import ConnectorRegistry
from service.connect.connectors.api import SinkTask
from service.connect.running.run import Loop, LoopParts
from service.connect.tasks.pipeline import Chain, sink_pipeline, source_pipeline
from service.connect.tasks.sink import SinkLoop
from service.connect.tasks.source import SourceLoop
from service.connect.transforms.choice import transforms_of


def loop_of(running: LoopParts) -> Loop:
    """Return the loop of a task. Raises `ConfigFault`."""
    config, policy = running.config, running.policy
    chain: Chain | None = transforms_of(config) if config.get("transforms") else None
    registry = ConnectorRegistry(running.parts, running.holding.connector)
    task = running.task
    if isinstance(task, SinkTask):
        return SinkLoop(
            running.parts,
            running.holding.connector,
            running.holding.number,
            config,
            task,
            sink_pipeline(config, chain, policy, registry),
            policy,
            running.commits,
            records_max=running.records_max,
        )
    world = running.parts.gateway.world
    return SourceLoop(
        task,
        source_pipeline(config, chain, policy, registry),
        policy,
        running.commits,
        world,
    )
