"""The mirror, as the catalog knows it."""

from collections.abc import Sequence
from typing import Final

from service.connect.config.keys import Config
from service.connect.connectors.api import Environment, Plugin, PluginKind, SourceTask, TaskContext
from service.connect.connectors.mirror.keys import BYTES, CONVERTERS, IGNORED, KEYS, SHARE, check
from service.connect.connectors.mirror.selection import PartitionShare

CLASS_NAME: Final = "MirrorSourceConnector"
ALIASES: Final = ("org.apache.kafka.connect.mirror.MirrorSourceConnector",)


async def _tasks(config: Config, tasks_max: int, _: Environment) -> list[Config]:
    """Give each task a share of all partitions there are or will be: nothing is asked here."""
    bytes_kept = dict.fromkeys(CONVERTERS, BYTES)
    return [
        {**bytes_kept, **config, SHARE: str(PartitionShare(n, tasks_max))} for n in range(tasks_max)
    ]


def _make(context: TaskContext) -> SourceTask:
    from service.connect.connectors.mirror.task import MirrorSource

    return MirrorSource(context)


PLUGINS: Final[Sequence[Plugin]] = (
    Plugin(
        kind=PluginKind.SOURCE,
        class_name=CLASS_NAME,
        aliases=ALIASES,
        version="1.0",
        about="Copies topics of a Kafka cluster: records, partitions, configs, group offsets.",
        keys=KEYS,
        ignored=IGNORED,
        check=check,
        tasks=_tasks,
        make=_make,
        promises=(
            "Each committed record of the source is here once, in the order of its partition,"
            " whatever dies; groups go on at or before where they were."
        ),
    ),
)
