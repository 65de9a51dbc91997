"""A produce body of any accepted type, decoded to one Arrow batch.

application/json                       {"records": [...]}, and what is meant by no type
application/x-ndjson                   a record per line
application/vnd.apache.arrow.stream    columns
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from service.http.bodies.arrow import decode_arrow
from service.http.bodies.json import UnencodedRecords, decode_json, decode_ndjson
from service.process.limits.record_limits import DEFAULT_LIMITS, RecordLimits
from storage.errors import UnsupportedMediaType
from storage.formats.partitioner import Explicit
from storage.formats.slices import Sent

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"

_DECODERS: Final[dict[str, Callable[..., Any]]] = {
    JSON: decode_json,
    NDJSON: decode_ndjson,
    ARROW_STREAM: decode_arrow,
    "": decode_json,
    "*/*": decode_json,
    "application/*": decode_json,
}


@dataclass(frozen=True, slots=True)
class Produced:
    """The records of a request, and their requested partitions: the arguments of `assign`."""

    batch: pa.RecordBatch
    partitions: Explicit
    sent: Sequence[Sent] = ()
    """The same records in pieces, if they can be stored as received."""
    key_schema_id: int | None = None
    """Of the schema by which all keys were encoded."""
    value_schema_id: int | None = None


def decode_produce(
    body: bytes, content_type: str | None, *, now_ms: int, limits: RecordLimits = DEFAULT_LIMITS
) -> Produced | UnencodedRecords:
    """Return the records of `body`; those without a timestamp get `now_ms`.

    Of records whose schema the body names, nothing is encoded yet.

    Raises `UnsupportedMediaType` for another type, `InvalidRequest` for a body that does not
    match its type, and the errors of `service/process/limits/record_limits.py` for one that is
    too large.
    """
    media_type, _, parameters = (content_type or "").partition(";")
    decode = _DECODERS.get(media_type.strip().lower())
    if decode is None or not _is_utf8(parameters):
        raise UnsupportedMediaType(
            f"Content-Type {content_type!r} is not supported;"
            f" use {JSON}, {NDJSON} (both UTF-8) or {ARROW_STREAM}"
        )
    found = decode(body, now_ms=now_ms, limits=limits)
    return found if isinstance(found, UnencodedRecords) else Produced(*found)


def _is_utf8(parameters: str) -> bool:
    charset = parameters.lower().partition("charset=")[2].partition(";")[0].strip().strip('"')
    return charset in ("", "utf-8", "utf8", "us-ascii")
