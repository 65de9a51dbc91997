"""Java's properties files, as far as they hold secrets. Pure."""

import re
from typing import Final

_PAIR: Final = re.compile(
    r"(?P<name>(?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<letter>.))", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a file; the last one counts if a name comes twice."""
    found: dict[str, str] = {}
    for line in _lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            found[_plain(pair["name"])] = _plain(pair["value"])
    return found


def _lines(text: str) -> list[str]:
    """Return logical lines: without comments, and those that end in a backslash joined."""
    lines: list[str] = []
    open_line = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not open_line and (not line or line[0] in "#!"):
            continue
        open_line += line
        backslashes = len(open_line) - len(open_line.rstrip("\\"))
        if backslashes % 2:
            open_line = open_line[:-1]
            continue
        lines.append(open_line)
        open_line = ""
    return [*lines, open_line] if open_line else lines


def _plain(text: str) -> str:
    def value(found: re.Match[str]) -> str:
        if found["code"]:
            return chr(int(found["code"], 16))
        return _LETTERS.get(found["letter"], found["letter"])

    return _ESCAPE.sub(value, text)
