"""Reading with a view of a lane that may be old.

What an old root names may have been compacted meanwhile, or deleted by retention, and swept; what
an old head has in the table may have been rolled. All of that changes the root, or a log start, and
a look at the head of now tells where the records went.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from storage.errors import ObjectMissing
from storage.head.head import Head
from storage.lanes.lane import Lane, LaneView

T = TypeVar("T")

LOOKS_MAX: Final = 5
"""Rolls and compaction would have to be that much quicker than one read."""


async def reread(
    lane: Lane, view: LaneView, read: Callable[[Head], Awaitable[T]]
) -> tuple[T, LaneView]:
    """Return what `read` found, and the view with which it did: `view`, or a newer one.

    Raises `ObjectMissing` only if that is so for the head of now.
    """
    for _ in range(LOOKS_MAX - 1):
        try:
            return await read(view.head), view
        except ObjectMissing:
            now = await lane.view(0)
            if (now.head.root, now.head.log_starts) == (view.head.root, view.head.log_starts):
                raise
            view = now
    return await read(view.head), view
