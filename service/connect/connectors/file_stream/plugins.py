"""The file source and the file sink as they are configured."""

from typing import Any, Final

from service.connect.config.keys import Config, Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.connectors import guarded_files
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    SinkTask,
    SourceTask,
    TaskContext,
    single_task,
)
from service.connect.connectors.file_stream.sink import FileSink
from service.connect.connectors.file_stream.source import ENCODINGS, FileSource

VERSION: Final = "1"


def _not_empty(_: str, value: Any) -> str | None:
    return None if value else "must not be empty"


SOURCE_KEYS: Final = (
    Key(
        name="file",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The file to read: below `RIACHO_CONNECT_FILES`, relative to it or absolute.",
        check=_not_empty,
    ),
    Key(
        name="topic",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The topic that gets the lines.",
        check=_not_empty,
    ),
    Key(
        name="batch.size",
        type=KeyType.INT,
        default=2000,
        importance=Importance.LOW,
        about="The most lines that are read at a time.",
        check=between(1, 100_000),
    ),
    Key(
        name="encoding",
        type=KeyType.STRING,
        default="UTF-8",
        importance=Importance.LOW,
        about="The character set of the file; `bytes`: lines stay bytes. Not a key of Kafka's.",
        choices=ENCODINGS,
    ),
)

SINK_KEYS: Final = (
    Key(
        name="file",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The file to append to: below `RIACHO_CONNECT_FILES`, relative to it or absolute.",
        check=_not_empty,
    ),
)


def _check(config: Config, environment: Environment) -> dict[str, str]:
    refused = guarded_files.refusal(environment, config.get("file", ""))
    return {"file": refused} if refused else {}


def _make_source(context: TaskContext) -> SourceTask:
    return FileSource(context, Values(SOURCE_KEYS, context.config))


def _make_sink(context: TaskContext) -> SinkTask:
    return FileSink(context, Values(SINK_KEYS, context.config))


PLUGINS: Final = (
    Plugin(
        kind=PluginKind.SOURCE,
        class_name="FileStreamSource",
        aliases=("org.apache.kafka.connect.file.FileStreamSourceConnector",),
        version=VERSION,
        about="The lines of a file, each a record, and those that are appended to it later.",
        keys=SOURCE_KEYS,
        check=_check,
        tasks=single_task,
        make=_make_source,
        promises="Each line is in the log once, in the order of the file.",
    ),
    Plugin(
        kind=PluginKind.SINK,
        holds_positions=True,
        class_name="FileStreamSink",
        aliases=("org.apache.kafka.connect.file.FileStreamSinkConnector",),
        version=VERSION,
        about="Records as lines at the end of a file.",
        keys=SINK_KEYS,
        check=_check,
        tasks=single_task,
        make=_make_sink,
        promises=(
            "Each record is in the file once, in the order of its partition: the file beside it, "
            "`<file>.riacho`, holds the offsets."
        ),
    ),
)
