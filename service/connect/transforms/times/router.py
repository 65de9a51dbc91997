"""TimestampRouter: a topic for each day, or whatever a pattern says."""

from typing import Final

import msgspec

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.logical import timestamp_from_ms
from service.connect.data.records import ConnectRecord
from service.connect.transforms.api import Transform
from service.connect.transforms.kinds import PACKAGE, TransformKind
from service.connect.transforms.times.patterns import DatePattern


def _timestamp_router(values: Values) -> Transform:
    said: str = values["timestamp.format"]
    try:
        pattern = DatePattern(said)
    except ValueError as error:
        raise ConfigFault({"timestamp.format": f"{said!r} {error}"}) from None
    form: str = values["topic.format"]

    def transform(record: ConnectRecord) -> ConnectRecord:
        if record.timestamp_ms is None:
            raise DataFault(f"Timestamp missing on record of topic {record.topic}")
        when = pattern.format(timestamp_from_ms(record.timestamp_ms))
        topic = form.replace("${topic}", record.topic).replace("${timestamp}", when)
        return msgspec.structs.replace(record, topic=topic)

    return transform


TIMESTAMP_ROUTER: Final = TransformKind(
    class_name=PACKAGE + "TimestampRouter",
    about="Makes the topic's name of the topic and the record's time.",
    keys=(
        Key(
            name="topic.format",
            type=KeyType.STRING,
            default="${topic}-${timestamp}",
            importance=Importance.HIGH,
            about="The new name, with `${topic}` and `${timestamp}` in it.",
        ),
        Key(
            name="timestamp.format",
            type=KeyType.STRING,
            default="yyyyMMdd",
            importance=Importance.HIGH,
            about="The pattern of the time, as Java's `SimpleDateFormat` has it; in UTC.",
        ),
    ),
    make=_timestamp_router,
)
