"""The state of a zone, as an item that all processes read, and its transitions. Pure.

    online ── some failed probes in a row ──▶ offline ── some good ones in a row ──▶ online
       │                                          │
       └──────────── its marker is gone ──────────┴──▶ wiped ── out of every ISR ──▶ online

A zone is identified by a marker, an object with a random name that is written once. If the store
answers but the marker is missing, the store was emptied, or its name points to another store.
Then it holds none of the objects that runs and entries list for it, and it must leave every ISR
before anything is copied back (`is_whole`).
"""

from typing import Final, Literal

import msgspec

from storage.formats import frames

State = Literal["online", "offline", "wiped"]

_MAGIC: Final = b"RZN1"


class ResyncStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far the zone is with catching up."""

    lanes_behind: int = 0
    objects_checked: int = 0
    objects_copied: int = 0
    bytes_copied: int = 0
    lost: int = 0
    """Objects that no zone holds any more."""
    lost_keys: list[str] = []
    error: str = ""
    """Why it cannot continue."""


class ZoneItem(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: State = "online"
    since_ms: int = 0
    marker: str = ""
    is_whole: bool = True
    """False: it lost its objects, and not all of them are restored yet."""
    failures: int = 0
    successes: int = 0
    """Probes in a row."""
    reason: str = ""
    latency_ms: int = 0
    checked_ms: int = 0
    resync: ResyncStatus | None = None


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The result of probing a zone."""

    error: str = ""
    """Empty: a write succeeded and was read back."""
    has_marker: bool = True
    latency_ms: int = 0


def probed(
    item: ZoneItem, probe: Probe, now_ms: int, *, failures_max: int, successes_min: int
) -> ZoneItem:
    """Return the item after a probe."""
    checked = msgspec.structs.replace(item, checked_ms=now_ms, latency_ms=probe.latency_ms)
    if probe.error:
        failures = min(item.failures + 1, failures_max)
        failed = msgspec.structs.replace(
            checked, failures=failures, successes=0, reason=probe.error
        )
        if failures >= failures_max and item.state == "online":
            return _in_state(failed, "offline", now_ms)
        return failed
    successes = item.successes + 1
    good = msgspec.structs.replace(checked, failures=0, successes=successes)
    if not probe.has_marker:
        reason = "the store is empty, or another one: what it held is gone"
        lost = msgspec.structs.replace(good, is_whole=False, marker="", reason=reason, resync=None)
        return _in_state(lost, "wiped", now_ms)
    if item.state == "offline" and successes >= successes_min:
        back: State = "online" if item.is_whole else "wiped"
        return _in_state(msgspec.structs.replace(good, reason=""), back, now_ms)
    return good


def left_every_isr(item: ZoneItem, now_ms: int) -> ZoneItem:
    """Return the item of a wiped zone that is in no ISR any more: it may be filled again."""
    assert item.state == "wiped", item
    return _in_state(item, "online", now_ms)


def restored(item: ZoneItem) -> ZoneItem:
    """Return the item of a zone that holds everything again; lost objects stay reported."""
    resync = item.resync
    if resync is not None:
        done = msgspec.structs.replace(resync, lanes_behind=0, error="")
        resync = done if resync.lost else None
    return msgspec.structs.replace(item, is_whole=True, reason="", resync=resync)


def _in_state(item: ZoneItem, state: State, now_ms: int) -> ZoneItem:
    if item.state == state:
        return item
    return msgspec.structs.replace(item, state=state, since_ms=now_ms, successes=0)


_DECODER: Final = msgspec.msgpack.Decoder(ZoneItem)


def encode(item: ZoneItem) -> bytes:
    return frames.seal(_MAGIC, msgspec.msgpack.encode(item))


def decode(value: bytes) -> ZoneItem:
    return frames.unpack(_MAGIC, value, _DECODER, "the item of a zone")
