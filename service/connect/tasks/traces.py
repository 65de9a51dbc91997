"""Why something failed, as its status shows it."""

import traceback
from typing import Final

from service.connect.data.errors import ConfigFault, ConnectFault
from storage.errors import RiachoError

TRACE_CHARS_MAX: Final = 8_000
FRAMES_MAX: Final = 12


def trace_of(error: BaseException) -> str:
    """Return why a task failed: the error as Kafka Connect calls it, and what has caused it.

    An error that nobody meant to raise is shown with where it came from.
    """
    lines = [_line(error)]
    cause = error.__cause__
    while cause is not None and len(lines) < FRAMES_MAX:
        lines.append(f"Caused by: {_line(cause)}")
        cause = cause.__cause__
    if not isinstance(error, ConnectFault | ConfigFault | RiachoError):
        lines += [text.rstrip() for text in traceback.format_tb(error.__traceback__)[-FRAMES_MAX:]]
    return "\n".join(lines)[:TRACE_CHARS_MAX]


def _line(error: BaseException) -> str:
    name = getattr(error, "java_name", None) or type(error).__name__
    return f"{name}: {error}" if str(error) else str(name)
