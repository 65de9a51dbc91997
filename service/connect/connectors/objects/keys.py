"""The keys of the object sink, with Confluent's names, and what they say together."""

from collections.abc import Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from service.connect.config.keys import REQUIRED, Check, Config, Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.connectors.api import Environment
from service.connect.connectors.objects.cutting import compatibility
from service.connect.connectors.objects.formats.avro import CODECS as AVRO_CODECS
from service.connect.connectors.objects.formats.parquet import CODECS as PARQUET_CODECS
from service.connect.connectors.objects.placing import times
from service.connect.connectors.objects.placing.patterns import has_names, pattern_of
from service.connect.connectors.objects.stores import folder_of
from service.connect.data.errors import ConfigFault

FORMATS: Final = ("JsonFormat", "AvroFormat", "ParquetFormat", "ByteArrayFormat")
TIME_PARTITIONERS: Final = ("TimeBasedPartitioner", "HourlyPartitioner", "DailyPartitioner")
PARTITIONERS: Final = ("DefaultPartitioner", "FieldPartitioner", *TIME_PARTITIONERS)
FLUSH_RECORDS_MAX: Final = 10_000_000
FILE_BYTES_DEFAULT: Final = 256 * 1024 * 1024
FILE_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
ROTATE_MS_MAX: Final = 366 * 86_400_000

IGNORED: Final = {
    "storage.class": "there is one kind of storage; store.url says where",
    "schema.generator.class": "the schemas of folders are not stored",
    "retry.backoff.ms": "errors.retry.timeout says how long a call is repeated",
    "keys.format.class": "keys are not stored",
    "headers.format.class": "headers are not stored",
    "s3.part.size": "files above 64 MiB are sent in parts of 8 MiB",
    "s3.part.retries": "requests are repeated a few times, then the task is",
    "s3.retry.backoff.ms": "requests are repeated a few times, then the task is",
    "s3.http.send.expect.continue": "requests do not wait for a go-ahead",
    "s3.path.style.access.enabled": "the name of the bucket is in the path where store.url is set",
    "s3.wan.mode": "it has no counterpart",
    "schema.cache.size": "schemas are made once per file",
    "enhanced.avro.schema.support": "names and versions of schemas are kept",
    "connect.meta.data": "Avro files hold no schemas of Connect",
    "allow.optional.map.keys": "such maps are written as lists of entries",
}


def short(name: str) -> str:
    """Return the name of a Java class without its package."""
    return name.strip().rpartition(".")[2].rpartition("$")[2]


def _class_of(*choices: str) -> Check:
    def check(_: str, value: Any) -> str | None:
        return None if short(str(value)) in choices else f"must be one of {', '.join(choices)}"

    return check


def _zone(_: str, value: Any) -> str | None:
    if value is None:
        return None
    try:
        ZoneInfo(str(value))
    except (KeyError, OSError, ValueError):
        return f"{value!r} is not a time zone like Europe/Berlin or UTC"
    return None


def _pattern(_: str, value: Any) -> str | None:
    try:
        pattern_of(str(value or ""))
    except ValueError as error:
        return str(error)
    return None


def _not_here(_: str, value: Any) -> str | None:
    return (
        "keys and headers are not stored beside values: move them with transforms"
        if value
        else None
    )


def _folder(_: str, value: Any) -> str | None:
    parts = str(value).split("/")
    if all(part not in ("", ".", "..") for part in parts) and str(value).isascii():
        return None
    return "must be ASCII names between slashes, with no slash at the ends"


def _key(name: str, kind: KeyType, default: Any, about: str, group: str, **more: Any) -> Key:
    return Key(name=name, type=kind, default=default, about=about, group=group, **more)


_STORE: Final = (
    _key(
        "s3.bucket.name",
        KeyType.STRING,
        None,
        "The bucket. Needed unless store.url is a file: URL.",
        "Store",
        importance=Importance.HIGH,
    ),
    _key("s3.region", KeyType.STRING, None, "AWS's region; unset: the environment's.", "Store"),
    _key(
        "store.url",
        KeyType.STRING,
        None,
        "Another store that speaks S3, or file:///FOLDER for one below RIACHO_CONNECT_FILES.",
        "Store",
    ),
    _key(
        "aws.access.key.id",
        KeyType.STRING,
        None,
        "With aws.secret.access.key; unset: the credentials of the environment.",
        "Store",
    ),
    _key(
        "aws.secret.access.key",
        KeyType.PASSWORD,
        None,
        "A reference to the secret of the key.",
        "Store",
    ),
)
_NAMES: Final = (
    _key(
        "topics.dir",
        KeyType.STRING,
        "topics",
        "The folder that all names begin with.",
        "Names",
        check=_folder,
    ),
    _key(
        "directory.delim",
        KeyType.STRING,
        "/",
        "What separates folders.",
        "Names",
        importance=Importance.LOW,
        choices=("/",),
    ),
    _key(
        "file.delim",
        KeyType.STRING,
        "+",
        "What separates topic, partition and offset.",
        "Names",
        importance=Importance.LOW,
        choices=("+", "-", "_", ".", "="),
    ),
    _key(
        "filename.offset.zero.pad.width",
        KeyType.INT,
        10,
        "How many digits offsets have at least.",
        "Names",
        importance=Importance.LOW,
        check=between(0, 19),
    ),
)
_FILES: Final = (
    _key(
        "format.class",
        KeyType.CLASS,
        "JsonFormat",
        "JsonFormat, AvroFormat, ParquetFormat or ByteArrayFormat.",
        "Files",
        importance=Importance.HIGH,
        check=_class_of(*FORMATS),
    ),
    _key(
        "flush.size",
        KeyType.INT,
        REQUIRED,
        "Files of a partition are cut once they hold so many records together.",
        "Files",
        importance=Importance.HIGH,
        check=between(1, FLUSH_RECORDS_MAX),
    ),
    _key(
        "rotate.interval.ms",
        KeyType.LONG,
        -1,
        "Files are cut when records differ by so much in time; -1: never.",
        "Files",
        importance=Importance.HIGH,
        check=between(-1, ROTATE_MS_MAX),
    ),
    _key(
        "rotate.schedule.interval.ms",
        KeyType.LONG,
        -1,
        "Files are cut at multiples of this by the wall clock, so records may come twice.",
        "Files",
        check=between(-1, ROTATE_MS_MAX),
    ),
    _key(
        "file.bytes.max",
        KeyType.LONG,
        FILE_BYTES_DEFAULT,
        "Ours: files of a partition are cut once they have so many bytes together.",
        "Files",
        check=between(1, FILE_BYTES_MAX),
    ),
    _key(
        "schema.compatibility",
        KeyType.STRING,
        compatibility.NONE,
        "NONE: another schema begins another file; else values are projected to the file's.",
        "Files",
        choices=("NONE", "BACKWARD", "FORWARD", "FULL"),
    ),
    _key(
        "behavior.on.null.values",
        KeyType.STRING,
        "fail",
        "What becomes of tombstones: fail gives them up as errors.* says.",
        "Files",
        importance=Importance.LOW,
        choices=("fail", "ignore"),
    ),
    _key(
        "s3.compression.type",
        KeyType.STRING,
        "none",
        "Of JsonFormat and ByteArrayFormat.",
        "Files",
        choices=("none", "gzip"),
    ),
    _key(
        "s3.compression.level",
        KeyType.INT,
        -1,
        "Of gzip; -1: its default.",
        "Files",
        importance=Importance.LOW,
        check=between(-1, 9),
    ),
    _key(
        "avro.codec",
        KeyType.STRING,
        "null",
        "Of AvroFormat.",
        "Files",
        importance=Importance.LOW,
        choices=tuple(AVRO_CODECS),
    ),
    _key(
        "parquet.codec",
        KeyType.STRING,
        "snappy",
        "Of ParquetFormat.",
        "Files",
        importance=Importance.LOW,
        choices=PARQUET_CODECS,
    ),
    _key(
        "json.decimal.format",
        KeyType.STRING,
        "BASE64",
        "Decimals of JsonFormat.",
        "Files",
        importance=Importance.LOW,
        choices=("BASE64", "NUMERIC"),
    ),
    _key(
        "format.bytearray.extension",
        KeyType.STRING,
        ".bin",
        "What names of ByteArrayFormat end with.",
        "Files",
        importance=Importance.LOW,
    ),
    _key(
        "format.bytearray.separator",
        KeyType.STRING,
        None,
        "What follows each value of ByteArrayFormat; unset: a line end.",
        "Files",
        importance=Importance.LOW,
    ),
    _key(
        "store.kafka.keys",
        KeyType.BOOLEAN,
        False,
        "Only false.",
        "Files",
        importance=Importance.LOW,
        check=_not_here,
    ),
    _key(
        "store.kafka.headers",
        KeyType.BOOLEAN,
        False,
        "Only false.",
        "Files",
        importance=Importance.LOW,
        check=_not_here,
    ),
)
_FOLDERS: Final = (
    _key(
        "partitioner.class",
        KeyType.CLASS,
        "DefaultPartitioner",
        "Default-, Field-, TimeBased-, Hourly- or DailyPartitioner.",
        "Folders",
        importance=Importance.HIGH,
        check=_class_of(*PARTITIONERS),
    ),
    _key(
        "partition.field.name",
        KeyType.LIST,
        [],
        "The fields of FieldPartitioner; a.b is a field of a field.",
        "Folders",
    ),
    _key(
        "partition.field.format.path",
        KeyType.BOOLEAN,
        True,
        "Whether folders of fields have the name of the field before the value.",
        "Folders",
        importance=Importance.LOW,
    ),
    _key(
        "path.format",
        KeyType.STRING,
        None,
        "The folder of TimeBasedPartitioner, like 'year'=YYYY/'month'=MM.",
        "Folders",
        check=_pattern,
    ),
    _key(
        "partition.duration.ms",
        KeyType.LONG,
        -1,
        "How much time a folder of TimeBasedPartitioner has.",
        "Folders",
        check=between(-1, ROTATE_MS_MAX),
    ),
    _key("locale", KeyType.STRING, None, "Of names in path.format: English only.", "Folders"),
    _key(
        "timezone",
        KeyType.STRING,
        None,
        "Of folders by time and rotate.schedule.interval.ms.",
        "Folders",
        check=_zone,
    ),
    _key(
        "timestamp.extractor",
        KeyType.STRING,
        times.WALLCLOCK,
        "Wallclock, Record or RecordField. With Wallclock, records may be stored twice.",
        "Folders",
        check=_class_of(times.WALLCLOCK, times.RECORD, times.RECORD_FIELD),
    ),
    _key(
        "timestamp.field",
        KeyType.STRING,
        "timestamp",
        "The field of RecordField: milliseconds, a timestamp, or ISO 8601.",
        "Folders",
    ),
)
KEYS: Final[Sequence[Key]] = (*_STORE, *_NAMES, *_FILES, *_FOLDERS)


def check(config: Config, environment: Environment) -> dict[str, str]:
    """Return problems that a single key's check cannot see."""
    try:
        values = Values(KEYS, config)
    except ConfigFault:
        return {}
    return {
        **_of_store(values, environment),
        **_of_time(values),
        **_of_format(values),
    }


def _of_store(values: Values, environment: Environment) -> dict[str, str]:
    found = {}
    url = values["store.url"] or ""
    if url.startswith("file:"):
        try:
            folder_of(url, environment.files)
        except ValueError as error:
            found["store.url"] = str(error)
    elif url and not url.startswith(("http://", "https://")):
        found["store.url"] = "must begin with https://, http:// or file:///"
    elif not values["s3.bucket.name"]:
        found["s3.bucket.name"] = "is required, unless store.url is a file: URL"
    if bool(values["aws.access.key.id"]) != bool(values["aws.secret.access.key"]):
        found["aws.access.key.id"] = "needs aws.secret.access.key, and the other way round"
    return found


def _of_time(values: Values) -> dict[str, str]:
    found = {}
    partitioner = short(values["partitioner.class"])
    if partitioner == "FieldPartitioner" and not values["partition.field.name"]:
        found["partition.field.name"] = "is required by FieldPartitioner"
    if partitioner == "TimeBasedPartitioner":
        if not values["path.format"]:
            found["path.format"] = "is required by TimeBasedPartitioner"
        if values["partition.duration.ms"] < 1:
            found["partition.duration.ms"] = "is required by TimeBasedPartitioner, above 0"
    if not values["timezone"]:
        if partitioner in TIME_PARTITIONERS:
            found["timezone"] = f"is required by {partitioner}"
        elif values["rotate.schedule.interval.ms"] > 0:
            found["timezone"] = "is required by rotate.schedule.interval.ms"
    locale = values["locale"] or "en"
    if has_names(values["path.format"] or "") and not locale.lower().startswith("en"):
        found["locale"] = "names of days and months are English only: use numbers, or locale=en"
    return found


def _of_format(values: Values) -> dict[str, str]:
    form = short(values["format.class"])
    if values["s3.compression.type"].lower() == "gzip" and form in ("AvroFormat", "ParquetFormat"):
        other = "avro.codec" if form == "AvroFormat" else "parquet.codec"
        return {"s3.compression.type": f"does not apply to {form}: use {other}"}
    extension = values["format.bytearray.extension"]
    if not extension.isascii() or not extension.strip(".").isalnum():
        return {"format.bytearray.extension": "must be letters and digits behind a dot"}
    return {}
