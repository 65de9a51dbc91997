"""A transform that mends letters: what a connector's configuration says of its records.

    value.converter, key.converter and what is below them    as of a connector; keys are bytes
                                                              unless it says otherwise
    transforms, predicates and what is below them            as of a connector

Headers stay as they are. A record that a transform drops is not sent, and counts as dealt with.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from service.connect.data.errors import ConfigFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord
from service.connect.tasks.pipeline import Converters
from service.connect.transforms.choice import transforms_of
from storage.errors import InvalidRequest

_PARTS: Final = ("transforms", "predicates", "key.converter", "value.converter")
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


def mend_of(
    config: Mapping[str, str], prefix: str
) -> Callable[[str, LogRecord], tuple[str, LogRecord] | None] | None:
    """Return what the transforms make of a record for a topic; None: there are none.

    Topics are named without `prefix` in transforms. Raises `InvalidRequest`.
    """
    if not config:
        return None
    for key in config:
        if not any(key == part or key.startswith(part + ".") for part in _PARTS):
            raise InvalidRequest(f"transform: {key!r} is none of {', '.join(_PARTS)} or below them")
    config = {"key.converter": _BYTES, **config}
    try:
        converters, chain = Converters(config), transforms_of(config)
    except ConfigFault as fault:
        raise InvalidRequest(f"transform: {fault}") from fault

    def mend(topic: str, record: LogRecord) -> tuple[str, LogRecord] | None:
        name = topic.removeprefix(prefix)
        key_schema, key = converters.key.to_data(name, record.key)
        value_schema, value = converters.value.to_data(name, record.value)
        made = chain(
            ConnectRecord(
                name, record.partition, key, value, key_schema, value_schema, record.timestamp_ms
            )
        )
        if made is None:
            return None
        mended = replace(
            record,
            key=converters.key.to_bytes(made.topic, made.key_schema, made.key),
            value=converters.value.to_bytes(made.topic, made.value_schema, made.value),
            timestamp_ms=made.timestamp_ms,
            partition=made.partition if made.topic == name else None,
        )
        return prefix + made.topic, mended

    return mend
