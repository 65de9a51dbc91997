"""The connector that makes records up, as it is configured."""

from typing import Any, Final

from service.connect.config.keys import Config, Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    SourceTask,
    TaskContext,
    same_tasks,
)
from service.connect.connectors.datagen.from_avro import maker_of
from service.connect.connectors.datagen.quickstarts import QUICKSTARTS
from service.connect.connectors.datagen.source import DatagenSettings, DatagenSource

VERSION: Final = "1"
INTERVAL_MS_MAX: Final = 86_400_000


def _not_empty(_: str, value: Any) -> str | None:
    return None if value else "must not be empty"


KEYS: Final = (
    Key(
        name="kafka.topic",
        type=KeyType.STRING,
        importance=Importance.HIGH,
        about="The topic that gets the records.",
        check=_not_empty,
    ),
    Key(
        name="quickstart",
        type=KeyType.STRING,
        default=None,
        importance=Importance.HIGH,
        about=f"What to make: {', '.join(f'`{name}`' for name in QUICKSTARTS)}.",
        choices=tuple(QUICKSTARTS),
    ),
    Key(
        name="schema.string",
        type=KeyType.STRING,
        default=None,
        importance=Importance.HIGH,
        about="Instead of `quickstart`: a record of Avro, whose `arg.properties` say what values "
        "are made.",
    ),
    Key(
        name="schema.keyfield",
        type=KeyType.STRING,
        default=None,
        about="The field that is the key; unset: the one of the `quickstart`, or none.",
    ),
    Key(
        name="max.interval",
        type=KeyType.LONG,
        default=500,
        importance=Importance.HIGH,
        about="The longest time between two records of a task, in milliseconds; it is half of that "
        "on average. 0: as fast as it goes.",
        check=between(0, INTERVAL_MS_MAX),
    ),
    Key(
        name="iterations",
        type=KeyType.LONG,
        default=-1,
        importance=Importance.HIGH,
        about="How many records each task makes; it rests afterwards. Below 1: without end.",
    ),
    Key(
        name="random.seed",
        type=KeyType.LONG,
        default=None,
        importance=Importance.LOW,
        about="The same seed makes the same records; unset: the first run draws one.",
    ),
)


def settings_of(config: Config) -> DatagenSettings:
    """Raise `ValueError` in words where keys do not fit together, and `ConfigFault`."""
    values = Values(KEYS, config)
    name, text = values["quickstart"], values["schema.string"]
    if bool(name) == bool(text):
        raise ValueError("set either quickstart or schema.string")
    quickstart = QUICKSTARTS[name.lower()] if name else None
    maker = quickstart.maker if quickstart is not None else maker_of(text)
    key_field = values["schema.keyfield"]
    if key_field is None:
        key_field = quickstart.key_field if quickstart is not None else ""
    if key_field and key_field not in maker.schema.by_name:
        raise ValueError(f"schema.keyfield is {key_field}, and there is no such field")
    iterations = values["iterations"]
    return DatagenSettings(
        topic=values["kafka.topic"],
        maker=maker,
        key_field=key_field,
        interval_s_max=values["max.interval"] / 1000,
        iterations=iterations if iterations > 0 else None,
        seed=values["random.seed"],
    )


def _check(config: Config, _: Environment) -> dict[str, str]:
    try:
        settings_of({"kafka.topic": "any", **config})
    except ValueError as error:
        return {"schema.string" if config.get("schema.string") else "quickstart": str(error)}
    return {}


def _make(context: TaskContext) -> SourceTask:
    return DatagenSource(context, settings_of(context.config))


PLUGINS: Final = (
    Plugin(
        kind=PluginKind.SOURCE,
        class_name="Datagen",
        aliases=("io.confluent.kafka.connect.datagen.DatagenConnector",),
        version=VERSION,
        about="Records that are made up, for demonstrations and tests.",
        keys=KEYS,
        ignored={"generate.timeout": "values are made at once, without tries"},
        check=_check,
        tasks=same_tasks,
        make=_make,
        promises="Each record of a task is in the log once, in order; a seed makes the same ones.",
    ),
)
