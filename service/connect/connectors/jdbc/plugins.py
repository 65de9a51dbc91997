"""The JDBC connectors as they are configured."""

from collections.abc import Mapping
from typing import Final

from service.connect.config.keys import Config
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    SinkTask,
    SourceTask,
    TaskContext,
    same_tasks,
)
from service.connect.connectors.guarded_files import refusal
from service.connect.connectors.jdbc.keys import IGNORED_PREFIXES
from service.connect.connectors.jdbc.sink.keys import SINK_IGNORED, SINK_KEYS, sink_problems
from service.connect.connectors.jdbc.source.keys import (
    SOURCE_IGNORED,
    SOURCE_KEYS,
    source_problems,
)
from service.connect.connectors.jdbc.urls import SQLITE, parse_url
from service.connect.data.errors import TaskFault

VERSION: Final = "1.0"


def _file_problem(config: Config, environment: Environment) -> Mapping[str, str]:
    try:
        address = parse_url(config.get("connection.url", ""))
    except ValueError:
        return {}  # The check of the key says it.
    if address.dialect != SQLITE:
        return {}
    wrong = refusal(environment, address.database)
    return {} if wrong is None else {"connection.url": wrong}


def _check_source(config: Config, environment: Environment) -> Mapping[str, str]:
    return {**source_problems(config), **_file_problem(config, environment)}


def _check_sink(config: Config, environment: Environment) -> Mapping[str, str]:
    return {**sink_problems(config), **_file_problem(config, environment)}


def _missing(error: ImportError) -> TaskFault:
    return TaskFault(f"the JDBC connectors need libraries: install riacho[connect] ({error})")


async def _source_tasks(config: Config, tasks_max: int, environment: Environment) -> list[Config]:
    try:
        from service.connect.connectors.jdbc.source.task import planned_tasks
    except ImportError as error:
        raise _missing(error) from error
    return await planned_tasks(config, tasks_max, environment)


def _make_source(context: TaskContext) -> SourceTask:
    try:
        from service.connect.connectors.jdbc.source.task import JdbcSourceTask
    except ImportError as error:
        raise _missing(error) from error
    return JdbcSourceTask(context)


def _make_sink(context: TaskContext) -> SinkTask:
    try:
        from service.connect.connectors.jdbc.sink.task import JdbcSinkTask
    except ImportError as error:
        raise _missing(error) from error
    return JdbcSinkTask(context)


JDBC_SOURCE: Final = Plugin(
    kind=PluginKind.SOURCE,
    class_name="JdbcSourceConnector",
    aliases=(
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "io.aiven.connect.jdbc.JdbcSourceConnector",
    ),
    version=VERSION,
    about="Rows of SQLite, PostgreSQL, MariaDB and MySQL as records, a topic for each table.",
    keys=SOURCE_KEYS,
    prefixes=IGNORED_PREFIXES,
    ignored=SOURCE_IGNORED,
    check=_check_source,
    tasks=_source_tasks,
    make=_make_source,
    promises="Modes incrementing and timestamp+incrementing, and timestamp for tables with a"
    " primary key of one whole number: each row version that is read is in the log once. Other"
    " tables in mode timestamp: at least once inside a group of equal timestamps. Bulk: the table"
    " again.",
)

JDBC_SINK: Final = Plugin(
    kind=PluginKind.SINK,
    class_name="JdbcSinkConnector",
    aliases=(
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
    ),
    version=VERSION,
    about="Records as rows of SQLite, PostgreSQL, MariaDB and MySQL, a table for each topic.",
    keys=SINK_KEYS,
    prefixes=IGNORED_PREFIXES,
    ignored=SINK_IGNORED,
    check=_check_sink,
    tasks=same_tasks,
    make=_make_sink,
    records_max=5_000,
    promises="Each record has its effect once: the position is written in the transaction of the"
    " rows. At least once without the table of positions (offsets.table.name).",
)

PLUGINS: Final = (JDBC_SOURCE, JDBC_SINK)
