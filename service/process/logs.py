"""Where log lines go: the access log to standard output, everything else to standard error.

On a terminal lines are text, elsewhere JSON, unless `RIACHO_LOG_FORMAT` says otherwise. The access
log bypasses `logging`, which is too slow for small requests: lines are buffered for a moment and
written together.
"""

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

FLUSH_S: Final = 0.1
"""Access lines are buffered for this long; a killed process may lose them."""

LINES_MAX: Final = 1000
"""Maximum number of buffered lines: then they are written at once."""


AUDIT_FILE: Final = "file:"
"""What `RIACHO_AUDIT` begins with if it names a file."""


class AccessLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    at: str = ""
    method: str
    route: str
    path: str
    status: int
    bytes: int
    took_ms: float
    referrer: str
    user_agent: str
    client: str
    request_id: str
    principal: str = ""
    """Who made the request, if security is on."""


class AccessLines:
    """Writes access lines to a stream, many at a time unless each is written `at_once`."""

    def __init__(self, stream: BinaryIO, *, as_json: bool, at_once: bool = False) -> None:
        self._stream = stream
        self._lines_max = 1 if at_once else LINES_MAX
        self._as_json = as_json
        self._lines: list[bytes] = []
        self._encoder = msgspec.json.Encoder()
        self._second = (-1, "")

    def add(self, line: AccessLine, now_ms: int) -> None:
        line.at = self._at(now_ms)
        if self._as_json:
            encoded = self._encoder.encode(line)
        else:
            encoded = (
                f"{line.at[11:19]} {line.status} {line.method:6} {line.path} {line.bytes}B"
                f" {line.took_ms}ms {line.request_id}"
            ).encode()
        self._lines.append(encoded)
        if len(self._lines) >= self._lines_max:
            self.flush()
        elif len(self._lines) == 1:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            try:
                self._stream.write(b"\n".join(lines) + b"\n")
                self._stream.flush()
            except (OSError, ValueError):
                return  # The log has no reader any more; that must not stop the service.

    def _at(self, now_ms: int) -> str:
        second, rest = divmod(now_ms, 1000)
        if self._second[0] != second:
            # Formatting a date takes longer than the rest of the line.
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._second = (second, text)
        return f"{self._second[1]}.{rest:03d}Z"


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "request_id"):
            line["request_id"] = record.request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = self.formatTime(record, "%H:%M:%S")
        text = f"{at} {record.levelname.lower():7} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def configure_logging(
    level: str, log_format: str, *, lines_at_once: bool = False
) -> AccessLines | None:
    """Set up the logs of this process; return the access log, or None if it is not wanted."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _JsonFormatter() if _is_json(log_format, sys.stderr) else _TextFormatter()
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("riacho")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(level.upper())
    if not logger.isEnabledFor(logging.INFO):
        return None
    as_json = _is_json(log_format, sys.stdout)
    return AccessLines(sys.stdout.buffer, as_json=as_json, at_once=lines_at_once)


def configure_audit_log(where: str) -> bool:
    """Let the logger `riacho.audit` write its lines as they are; return whether it writes any.

    `where` is on (standard error, as other lines), off, or file:<path>. A file that is moved away
    is opened again, so that it can be rotated.
    """
    logger = logging.getLogger("riacho.audit")
    path = where.removeprefix(AUDIT_FILE)
    handler: logging.Handler = logging.NullHandler()
    if where == "on":
        handler = logging.StreamHandler(sys.stderr)
    elif path != where:
        # Imported here: a cold start that writes no file does not need it.
        from logging.handlers import WatchedFileHandler

        # Only for its owner, as it says who may do what; an existing file keeps its mode.
        Path(path).touch(mode=0o600)
        handler = WatchedFileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    for old in logger.handlers:
        old.close()
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return where != "off"


def _is_json(log_format: str, stream: Any) -> bool:
    return log_format == "json" or (log_format == "auto" and not stream.isatty())
