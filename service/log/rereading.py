"""Reading with a view of a lane that may be stale.

Objects that an old root names may have been compacted, or deleted by retention, and swept; batches
that an old head has in the table may have been rolled. All of that changes the root or a log start,
so reading the current head shows where the records are now.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from storage.errors import ObjectMissing
from storage.head.head import Head
from storage.lanes.lane import Lane, LaneView

T = TypeVar("T")

LOOKS_MAX: Final = 5
"""Maximum number of reads. More would need rolls or compactions much faster than one read."""


async def reread(
    lane: Lane, view: LaneView, read: Callable[[Head], Awaitable[T]]
) -> tuple[T, LaneView]:
    """Return what `read` found, and the view it used: `view`, or a newer one.

    Raises `ObjectMissing` if objects are missing for the current head, too.
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
