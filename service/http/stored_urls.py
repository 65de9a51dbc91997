"""URLs of stored records: what a client needs to read them without the log's format of requests.

    store signs URLs (S3)         presigned; of a hot slice, bound to its bytes
    it does not, security on      a path of this gateway, which asks the index again
    it does not, security off     file:, which opens whole objects to whoever may read the disk

A hot object holds slices of many topics, so whoever may read one of them must not get the others.
A compacted object holds one partition of one topic: its URL gives all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from service.log.gateway import Gateway
from storage import keys
from storage.errors import InvalidRequest, NotSupported
from storage.formats.entries import Entry
from storage.head.head import Head
from storage.head.replication import read_names
from storage.stores.ranges import Range

JOINT_BYTES_MAX: Final = 8 * 1024 * 1024
JOINT_RANGES_MAX: Final = 32
"""Maximum bytes and ranges that one URL gives: enough that a request costs little, few enough that
a client that reads ahead needs little memory."""

_OBJECT_ID: Final = re.compile("([0-9]{1,18})-([0-9a-f]{1,64})")
_RANGE: Final = re.compile("bytes=([0-9]{1,18})-([0-9]{0,18})")


class Address(NamedTuple):
    """Where a client reads an entry."""

    url: str
    position: int
    """Of the entry's first byte in what the URL gives."""
    joint_url: str | None = None
    joint_end: int | None = None


@dataclass(frozen=True, slots=True)
class Addresses:
    """Makes the URLs of one answer."""

    gateway: Gateway
    head: Head
    here: str
    """The path of the request."""
    is_secured: bool
    through_gateway: bool = False
    """Only paths of this gateway, which counts what it sends."""

    async def of(self, entries: Sequence[Entry]) -> list[Address]:
        """Return the address of each entry; none of them is in the table."""
        found: list[Address] = []
        for run in _objects(entries):
            found += await self._of_object(run)
        return found

    async def _of_object(self, entries: Sequence[Entry]) -> Sequence[Address]:
        """Return the addresses of entries of one object."""
        first = entries[0]
        key = key_of(self.head, first)
        names = read_names(self.head, first.zones, first.partition)
        store = self.gateway.zones.store(min(names, key=self.gateway.zones.is_avoided))
        settings = self.gateway.settings
        if self.through_gateway or settings.presign == "gateway":
            return [self._here(entry) for entry in entries]
        spans = _spans(entries)
        try:
            urls = await store.presign(key, spans, settings.presign_expires_s)
        except NotSupported:
            if self.is_secured:
                return [self._here(entry) for entry in entries]
            return [Address(store.address(key), entry.position) for entry in entries]
        return _presigned(entries, dict(zip(spans, urls, strict=True)))

    def _here(self, entry: Entry) -> Address:
        """Return a path of this gateway. It names an offset that is kept as long as the entry."""
        if entry.segment is None:
            name = f"{entry.end_offset - 1}-{entry.object_id.hex()}"
            return Address(f"{self.here}/{name}", 0)
        # The same for all row groups, so that a client reads the footer once.
        name = f"{entry.segment.end_offset - 1}-{entry.object_id.hex()}"
        return Address(f"{self.here}/{name}", entry.position)


def key_of(head: Head, entry: Entry) -> str:
    """Return the key of the object that holds an entry."""
    if entry.segment is None:
        return keys.hot_segment(entry.object_id)
    return entry.segment.key(head.topic_id)


def parse_name(name: str) -> tuple[int, bytes]:
    """Return the offset and the object of a path that `Addresses` made."""
    found = _OBJECT_ID.fullmatch(name)
    if found is None or len(found[2]) % 2:
        raise InvalidRequest(
            f"{name!r:.100} is no stored range; ask for ranges at the path without it"
        )
    return int(found[1]), bytes.fromhex(found[2])


def parse_range(header: str | None, size_bytes: int) -> Range | None:
    """Return the bytes that a `Range` header asks for; None: all, as HTTP wants for other forms."""
    found = _RANGE.fullmatch(header or "")
    if found is None:
        return None
    start = int(found[1])
    end = min(int(found[2]) + 1 if found[2] else size_bytes, size_bytes)
    if start >= end:
        raise InvalidRequest(f"Range: {header} has none of the {size_bytes} bytes that are here")
    return start, end


def _objects(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return runs of entries that are in one object."""
    runs: list[list[Entry]] = []
    for entry in entries:
        if runs and runs[-1][-1].object_id == entry.object_id:
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _span(entry: Entry) -> Range:
    return entry.position, entry.position + entry.length


def _joint(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return runs of entries, each directly behind the last, that one request can read."""
    runs = [[entries[0]]]
    for last, entry in pairwise(entries):
        start, end = runs[-1][0].position, entry.position + entry.length
        if (
            _span(last)[1] == entry.position
            and len(runs[-1]) < JOINT_RANGES_MAX
            and end - start <= JOINT_BYTES_MAX
        ):
            runs[-1].append(entry)
        else:
            runs.append([entry])
    return runs


def _spans(entries: Sequence[Entry]) -> list[Range | None]:
    """Return what to sign: each slice, and those that one request can read; or the object."""
    if entries[0].is_row_group:
        return [None]
    joint = [(_span(run[0])[0], _span(run[-1])[1]) for run in _joint(entries) if len(run) > 1]
    return [*map(_span, entries), *joint]


def _presigned(entries: Sequence[Entry], urls: dict[Range | None, str]) -> list[Address]:
    if entries[0].is_row_group:
        return [Address(urls[None], entry.position) for entry in entries]
    found = []
    for run in _joint(entries):
        first, *others = run
        whole = None
        if others:
            end = _span(run[-1])[1]
            whole = urls[first.position, end], end
        found.append(Address(urls[_span(first)], first.position, *(whole or ())))
        found += [Address(urls[_span(entry)], entry.position) for entry in others]
    return found
