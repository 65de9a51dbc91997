"""Options of `riacho sql`: where to begin and end, columns, and those of continuous queries."""

import hashlib
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from riacho.cli.output import bad_usage
from riacho.cli.records.formats import Origin, parse_origin

_AGO: Final = re.compile(r"-(\d+)(s|m|h|d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_EVERY: Final = re.compile(r"(\d+)\s*(s|m|h)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours"}
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Mode(StrEnum):
    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Running:
    """A continuous query, as far as it is known before Spark starts."""

    into: str
    name: str
    checkpoint: str
    mode: Mode
    available_now: bool
    every: str | None
    watermark: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Words:
    start: Origin
    end: Origin


def origin_of(text: str, parameter: str) -> Origin:
    ago = _AGO.fullmatch(text)
    if ago is not None:
        from riacho.clock import now_ms

        return Origin("time", now_ms() - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    try:
        return parse_origin(text)
    except ValueError as error:
        raise bad_usage(str(error), parameter) from None


def schemas_of(texts: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        topic, separator, columns = text.partition("=")
        if not separator or " " in topic.strip():
            topic, columns = "", text
        if not columns.strip():
            raise bad_usage(f"{text!r} names no columns", "--schema")
        found[topic.strip()] = columns
    return found


def running_of(
    query: str,
    into: str | None,
    name: str | None,
    checkpoint: str | None,
    mode: Mode,
    available_now: bool,
    every: str | None,
    watermark: str | None,
) -> Running:
    if into is None:
        raise bad_usage("where to? A query that goes on writes to a topic", "--into")
    digest = hashlib.sha256(" ".join(query.split()).encode()).hexdigest()[:12]
    name = name or f"{into}-{digest}"
    if _NAME.fullmatch(name) is None:
        raise bad_usage(f"{name!r}: use letters, digits, dots, dashes and underscores", "--name")
    interval = None
    if every is not None:
        found = _EVERY.fullmatch(every)
        if found is None or available_now:
            what = "say it like 30s, 5m or 1h" if found is None else "give --every or --once"
            raise bad_usage(what, "--every")
        interval = f"{found[1]} {_UNITS[found[2]]}"
    late = None
    if watermark is not None:
        column, _, delay = watermark.rpartition("=")
        late = (column.strip(), delay.strip())
    place = checkpoint or str(_state_home() / "riacho" / "queries" / name)
    if "://" not in place:
        place = str(Path(place).absolute())
    return Running(into, name, place, mode, available_now, interval, late)


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def check_bounded(
    into: str | None,
    name: str | None,
    checkpoint: str | None,
    mode: Mode,
    available_now: bool,
    every: str | None,
    watermark: str | None,
) -> None:
    given = {
        "--into": into,
        "--name": name,
        "--checkpoint": checkpoint,
        "--mode": mode is not Mode.APPEND,
        "--available-now": available_now,
        "--every": every,
        "--watermark": watermark,
    }
    for parameter, value in given.items():
        if value:
            raise bad_usage("this is for --continuous", parameter)
