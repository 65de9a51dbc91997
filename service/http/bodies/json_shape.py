"""Check the number of records and headers in a JSON body before decoding it into objects.

A record can take two bytes of JSON, and many times that in memory; so can a header. A body with too
many records, or a record with too many headers, would be decoded for a second, into hundreds of
megabytes, only to be refused. This module refuses it first: it skips over fields, and keeps nothing
of a record except that it exists.

Most bodies need no such check. Their length, or the number of their braces and colons, which is
quickly counted, shows that they are small enough.
"""

import re
from itertools import islice
from threading import local
from typing import Final

import msgspec
from msgspec import Raw, Struct

from service.process.limits.record_limits import RecordLimits, refuse_count
from storage.errors import InvalidRecord

_BODY_BYTES_MAX: Final = 1024 * 1024
"""Bodies up to this size may have any shape."""
_BRACES_MAX: Final = 2
_COLONS_MAX: Final = 4
"""Multiples of the maximum number of records: a body with no more braces and colons may have any
shape."""
_HEADERS_BYTES_MAX: Final = 64 * 1024
"""Headers up to this size are not counted."""
_NAME: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"\s*+:')
_NAME_BYTES_MIN: Final = 4
_NO_HEADERS: Final = Raw(b"null")


class _Seen(local):
    """State of the check that this thread is running."""

    count = 0
    limits = RecordLimits()


_SEEN: Final = _Seen()


class _Record(Struct, gc=False):
    """Fields that are not named here are skipped."""

    headers: Raw = _NO_HEADERS


class _CountedRecord(_Record, gc=False):
    """Counted one by one, so that there are never more than a request may have."""

    def __post_init__(self) -> None:
        _SEEN.count += 1
        if _SEEN.count > _SEEN.limits.record_count_max:
            refuse_count(_SEEN.limits)


class _Body(Struct, gc=False):
    records: list[_Record]


class _CountedBody(Struct, gc=False):
    records: list[_CountedRecord]


_BODY: Final = msgspec.json.Decoder(_Body)
_COUNTED_BODY: Final = msgspec.json.Decoder(_CountedBody)
_LINES: Final = msgspec.json.Decoder(_Record)
_COUNTED_LINES: Final = msgspec.json.Decoder(_CountedRecord)


def check_shape(body: bytes, limits: RecordLimits, *, is_lines: bool = False) -> None:
    """Raise `RequestTooLarge` or `InvalidRecord` for a body that asks for too much.

    Bodies that are not JSON, or have another structure, are ignored here: the decoder reports
    them next, and stops at the same place.
    """
    if len(body) <= _BODY_BYTES_MAX:
        return
    # Counting the records one by one takes twice as long.
    is_crowded = body.count(b"{") > _BRACES_MAX * limits.record_count_max
    if not is_crowded and body.count(b":") <= _COLONS_MAX * limits.record_count_max:
        return
    _SEEN.count, _SEEN.limits = 0, limits
    try:
        if is_lines:
            records = (_COUNTED_LINES if is_crowded else _LINES).decode_lines(body)
        else:
            records = (_COUNTED_BODY if is_crowded else _BODY).decode(body).records
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for row, record in enumerate(records):
        if record.headers is not _NO_HEADERS:
            _check_names(record.headers, row, limits)


def _check_names(headers: Raw, row: int, limits: RecordLimits) -> None:
    """Raise `InvalidRecord` if there are more names in `headers` than the limits allow.

    A header has at most two names, and a third for its base64. Names within the JSON of its value
    are bounded by the maximum size of the record.
    """
    view = memoryview(headers)
    if len(view) <= _HEADERS_BYTES_MAX:
        return
    names_max = 3 * limits.header_count_max + limits.record_bytes_max // _NAME_BYTES_MIN
    if sum(1 for _ in islice(_NAME.finditer(view), names_max + 1)) > names_max:
        raise InvalidRecord(
            f"records[{row}].headers: more than {limits.header_count_max} headers,"
            " which is as many as a record may have"
        )
