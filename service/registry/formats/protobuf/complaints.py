"""What protoc says about a schema, as sentences for the author of the schema."""

import re
import signal
from typing import Final

COMPLAINTS_MAX: Final = 3
"""One mistake makes protoc complain many times; the first complaints say what it was."""
COMPLAINT_CHARS_MAX: Final = 500

_PLACED: Final = re.compile(r"(?P<file>[^:\n]+):(?P<line>\d+):(?P<column>\d+): (?P<what>.+)")
_FILED: Final = re.compile(r"(?P<file>[^:\n]+): (?P<what>.+)")
_ABSENT: Final = re.compile(r"(?P<file>.+): (?:File not found\.|.* are not allowed in .*)")
_MISSING: Final = re.compile(r'Import "(?P<name>.+)" was not found or had errors\.')


def plain(said: str, main: str, code: int) -> str:
    """Return why protoc, which ended with `code`, refused the file `main`."""
    absent = {match["file"] for line in said.splitlines() if (match := _ABSENT.fullmatch(line))}
    lines = (line for line in said.splitlines() if ": warning: " not in line)
    found = [sentence for line in lines if (sentence := _sentence(line, main, absent))]
    if found:
        return "; ".join(dict.fromkeys(found[:COMPLAINTS_MAX]))
    if absent:
        return _no_reference(min(absent))
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "the schema takes longer than a second to compile: make it smaller"
    if code == -signal.SIGABRT and "bad_alloc" in said:
        return "the schema takes more than 64 MiB to compile: make it smaller"
    return "protoc cannot compile the schema: make it smaller, and nest less in it"


def _sentence(line: str, main: str, absent: set[str]) -> str | None:
    placed = _PLACED.fullmatch(line)
    if placed is None:
        filed = _FILED.fullmatch(line)
        if filed is None or filed["file"] != main:
            return None
        return _shortened(filed["what"])
    where = f"line {placed['line']}, column {placed['column']}"
    if placed["file"] != main:
        where = f"in the reference {_shortened(placed['file'])!r}, {where}"
    missing = _MISSING.fullmatch(placed["what"])
    if missing is None:
        return f"{where}: {_shortened(placed['what'])}"
    if missing["name"] not in absent:
        return None
    return f"{where}: {_no_reference(missing['name'])}"


def _no_reference(name: str) -> str:
    return f"no reference is named {_shortened(name)!r}: add one, with its subject and version"


def _shortened(text: str) -> str:
    return text if len(text) <= COMPLAINT_CHARS_MAX else f"{text[:COMPLAINT_CHARS_MAX]}…"
