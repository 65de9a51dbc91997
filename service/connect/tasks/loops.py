"""The loop that a task of a connector needs: that of a source or of a sink."""

from typing import cast

from service.connect.connectors.api import SourceTask
from service.connect.tasks.pipeline import Chain, source_pipeline
from service.connect.tasks.run import Loop, Running
from service.connect.tasks.source import SourceLoop
from service.connect.transforms.choice import transforms_of


def loop_of(running: Running) -> Loop:
    """Return the loop of a task. Raises `ConfigFault`."""
    config, policy = running.config, running.policy
    chain: Chain | None = transforms_of(config) if config.get("transforms") else None
    world = running.parts.gateway.world
    return SourceLoop(
        cast("SourceTask", running.task),
        source_pipeline(config, chain, policy),
        policy,
        running.commits,
        world,
    )
