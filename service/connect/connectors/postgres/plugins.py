"""The PostgreSQL source as it is configured."""

from typing import Final

from service.connect.config.keys import Config
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    SourceTask,
    TaskContext,
    single_task,
)
from service.connect.connectors.postgres import settings
from service.connect.connectors.postgres.envelope import VERSION
from service.connect.connectors.postgres.keys import IGNORED, KEYS
from service.connect.connectors.postgres.task import PostgresTask


def _check(config: Config, _: Environment) -> dict[str, str]:
    return dict(settings.check(config))


def _make(context: TaskContext) -> SourceTask:
    return PostgresTask(context)


POSTGRES: Final = Plugin(
    kind=PluginKind.SOURCE,
    class_name="PostgresSource",
    aliases=("io.debezium.connector.postgresql.PostgresConnector",),
    version=VERSION,
    about="Every change of PostgreSQL's tables, as Debezium makes records of them.",
    keys=KEYS,
    ignored=IGNORED,
    check=_check,
    tasks=single_task,
    make=_make,
    promises=(
        "Each row of the snapshot and each change after it is in its topic once, in the order of "
        "commits; tables without a key that can be ordered are read again if their snapshot is "
        "interrupted."
    ),
)
PLUGINS: Final = (POSTGRES,)
