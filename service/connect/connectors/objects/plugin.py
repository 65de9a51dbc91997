"""The object sink, as the catalog knows it."""

from collections.abc import Sequence
from typing import Final

from service.connect.connectors.api import Plugin, PluginKind, SinkTask, TaskContext, same_tasks
from service.connect.connectors.objects.keys import IGNORED, KEYS, check

CLASS_NAME: Final = "ObjectSinkConnector"
ALIASES: Final = ("io.confluent.connect.s3.S3SinkConnector",)


def _make(context: TaskContext) -> SinkTask:
    from service.connect.connectors.objects.task import ObjectSink

    return ObjectSink(context)


PLUGINS: Final[Sequence[Plugin]] = (
    Plugin(
        kind=PluginKind.SINK,
        class_name=CLASS_NAME,
        aliases=ALIASES,
        version="1.0",
        about="Writes topics as JSON, Avro, Parquet or raw files to a bucket or a folder.",
        keys=KEYS,
        ignored=IGNORED,
        check=check,
        tasks=same_tasks,
        make=_make,
        records_max=5_000,
        promises=(
            "Each record is in one object, whatever dies, because names and bytes follow from the"
            " records; with rotation or folders by the wall clock, at least once."
        ),
    ),
)
