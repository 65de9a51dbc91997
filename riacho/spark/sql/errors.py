"""Explains Spark's exceptions on one line, without a stack trace."""

import re
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from storage.errors import Rejected

LINE_CHARS_MAX: Final = 500

_OURS: Final = re.compile(r"^\s*(?:\w+\.)*errors\.[A-Z]\w+: (.+)$", re.MULTILINE)
_LABEL: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$", re.DOTALL)
_POSITION: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_HINTS: Final = {
    "INVALID_IDENTIFIER": "names with dashes or dots need backticks, as in FROM `my-topic`",
    "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION": (
        "an aggregate of a stream is never finished without --watermark '10 minutes', behind"
        " which nothing is waited for; or use --mode update or complete"
    ),
    "TABLE_OR_VIEW_NOT_FOUND": "there is no such topic",
}


class BadQuery(Rejected):
    """The query is invalid."""

    code = "INVALID_QUERY"


def missing_relation(error: AnalysisException) -> tuple[str, ...] | None:
    """Return the name parts of the missing table, or None if the error is another one."""
    if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "")
    return tuple(part.replace("``", "`") for part in re.findall(r"`((?:[^`]|``)*)`", name))


def explained(error: PySparkException | Py4JJavaError) -> str:
    """Return the cause of the error on one line, with a hint if there is one."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage())
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()[:LINE_CHARS_MAX]
    first = _STATE.sub("", _LABEL.sub("", text.strip()).split("\n\n")[0])
    line = " ".join(first.split("\n== SQL")[0].split())[:LINE_CHARS_MAX].rstrip(" .")
    place = _POSITION.search(text)
    if place is not None:
        line += f" (line {place[1]}, column {int(place[2]) + 1})"
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    hint = _HINTS.get(condition or "")
    return f"{line}; {hint}" if hint else line
