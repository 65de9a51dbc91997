"""Stores files in zones: each zone succeeds or fails by itself, within a time limit."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from storage.errors import ObjectExists, RiachoError, StoreUnavailable
from storage.zones.zones import Zones

PUT_S_MAX: Final = 60.0
"""Maximum time to store a small file. Stores have their own timeouts, but a disk may hang."""

BYTES_PER_S_MIN: Final = 1024 * 1024
"""A zone that is slower than this counts as unavailable."""


async def put_file(
    zones: Zones,
    key: str,
    path: Path,
    names: Sequence[str],
    *,
    size_bytes: int,
    patience_s: float = PUT_S_MAX,
) -> tuple[list[str], list[RiachoError]]:
    """Store the file in every named zone; return those that hold it, and the errors."""
    seconds_max = patience_s + size_bytes / BYTES_PER_S_MIN
    answers = await asyncio.gather(*(_put(zones, name, key, path, seconds_max) for name in names))
    held = [name for name, error in zip(names, answers, strict=True) if error is None]
    return held, [error for error in answers if error is not None]


async def _put(
    zones: Zones, name: str, key: str, path: Path, seconds_max: float
) -> RiachoError | None:
    try:
        async with asyncio.timeout(seconds_max):
            await zones.store(name).put_file(key, path)
    except ObjectExists:
        return None  # Keys are random and written once, so this is the same object.
    except TimeoutError:
        return StoreUnavailable(f"zone {name} took more than {seconds_max:g} s for {key}")
    except RiachoError as error:
        return error
    return None
