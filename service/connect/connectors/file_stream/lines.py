"""Lines in bytes, ended as Java's readers see it: a newline, a carriage return, or both."""

import re
from typing import Final

_END: Final = re.compile(rb"\r\n|\n|\r")


def whole_lines(data: bytes, start: int, lines_max: int) -> list[tuple[bytes, int]]:
    """Return the lines from `start` that have ended, at most so many, each with where it ends.

    A carriage return at the very end has not ended its line yet: a newline may follow.
    """
    found: list[tuple[bytes, int]] = []
    for match in _END.finditer(data, start):
        if len(found) == lines_max or (match[0] == b"\r" and match.end() == len(data)):
            break
        found.append((data[start : match.start()], match.end()))
        start = match.end()
    return found
