"""From the keys of a configuration to how files are laid out."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from service.connect.config.values import Values
from service.connect.connectors.api import TopicPartition
from service.connect.connectors.objects.cutting.partition import FileLayout
from service.connect.connectors.objects.formats.api import OpenWriter
from service.connect.connectors.objects.formats.avro import CODECS, avro_files
from service.connect.connectors.objects.formats.lines import json_lines, raw_bytes
from service.connect.connectors.objects.formats.parquet import parquet_files
from service.connect.connectors.objects.keys import TIME_PARTITIONERS, short
from service.connect.connectors.objects.placing import partitioners, times
from service.connect.connectors.objects.placing.partitioners import Partitioner, safe
from service.connect.connectors.objects.placing.times import Extractor

_GZIP_LEVEL: Final = 6


def layout_of(values: Values, scratch: Path, now_ms: Callable[[], int]) -> FileLayout:
    """Return the layout that a checked configuration says."""
    begin, extension = _format(values)
    extractor = short(values["timestamp.extractor"])
    time = times.extractor_of(extractor, values["timestamp.field"], now_ms)
    numbers = count()
    return FileLayout(
        begin=begin,
        folder=_partitioner(values, time),
        time=time if _needs_time(values) else lambda _: 0,
        name=_namer(values, extension),
        new_path=lambda: scratch / str(next(numbers)),
        now_ms=now_ms,
        flush_records=values["flush.size"],
        file_bytes_max=values["file.bytes.max"],
        rotate_ms=max(values["rotate.interval.ms"], 0),
        is_wallclock=extractor == times.WALLCLOCK,
        is_by_time=short(values["partitioner.class"]) in TIME_PARTITIONERS,
        next_schedule_ms=_schedule(values),
        compatibility=values["schema.compatibility"].upper(),
    )


def _needs_time(values: Values) -> bool:
    return bool(values["rotate.interval.ms"] > 0)


def _format(values: Values) -> tuple[OpenWriter, str]:
    """Return the format, and what its names end with."""
    level = values["s3.compression.level"]
    is_gzip = values["s3.compression.type"].lower() == "gzip"
    gzip_level = (_GZIP_LEVEL if level < 0 else level) if is_gzip else None
    ending = ".gz" if is_gzip else ""
    match short(values["format.class"]):
        case "AvroFormat":
            return avro_files(CODECS[values["avro.codec"].lower()]), ".avro"
        case "ParquetFormat":
            codec = values["parquet.codec"].lower()
            suffix = "" if codec == "none" else f".{_PARQUET.get(codec, codec)}"
            return parquet_files(codec), f"{suffix}.parquet"
        case "ByteArrayFormat":
            separator = values["format.bytearray.separator"]
            text = "\n" if separator is None else separator
            extension = f".{values['format.bytearray.extension'].lstrip('.')}"
            return raw_bytes(gzip_level=gzip_level, separator=text.encode()), extension + ending
    numeric = values["json.decimal.format"].upper() == "NUMERIC"
    return json_lines(gzip_level=gzip_level, numeric_decimals=numeric), f".json{ending}"


_PARQUET: Final = {"gzip": "gz", "brotli": "br"}


def _partitioner(values: Values, time: Extractor) -> Partitioner:
    delimiter = values["directory.delim"]
    name = short(values["partitioner.class"])
    if name == "FieldPartitioner":
        return partitioners.by_fields(
            values["partition.field.name"],
            delimiter,
            with_names=values["partition.field.format.path"],
        )
    if name not in TIME_PARTITIONERS:
        return partitioners.by_partition()
    pattern, duration_ms = {
        "HourlyPartitioner": (partitioners.HOURLY, partitioners.HOUR_MS),
        "DailyPartitioner": (partitioners.DAILY, partitioners.DAY_MS),
    }.get(name, (values["path.format"], values["partition.duration.ms"]))
    zone = ZoneInfo(values["timezone"])
    return partitioners.by_time(pattern, duration_ms, zone, time, delimiter)


def _namer(values: Values, extension: str) -> Callable[[str, str, TopicPartition, int], str]:
    root, delimiter = values["topics.dir"], values["file.delim"]
    width = values["filename.offset.zero.pad.width"]

    def name(topic: str, folder: str, at: TopicPartition, offset: int) -> str:
        # The file is named for where its records are in the log, whatever transforms make of
        # their topic: two topics may be routed to one folder.
        file = delimiter.join((at.topic, str(at.partition), str(offset).zfill(width)))
        return f"{root}/{safe(topic)}/{folder}/{file}{extension}"

    return name


def _schedule(values: Values) -> Callable[[int], int] | None:
    """Return what says when files are cut next by the wall clock."""
    every_ms: int = values["rotate.schedule.interval.ms"]
    if every_ms <= 0:
        return None
    zone = ZoneInfo(values["timezone"])

    def following(now_ms: int) -> int:
        now = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone(zone)
        shift_ms = (now.utcoffset() or timedelta()) // timedelta(milliseconds=1)
        return ((now_ms + shift_ms) // every_ms + 1) * every_ms - shift_ms

    return following
