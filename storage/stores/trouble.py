"""Whether a local store can be written to, as its last write found it.

A full or failing disk, or a process without descriptors, fails every write in the same way until a
person does something about it. So the first failure is logged as a warning, the ones after it at a
bounded pace, and the gateway says that it is not ready (`service/process/store_watch.py`).
"""

import errno
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

log = logging.getLogger("riacho.stores")

LOGGED_EVERY_S: Final = 10.0
"""A store that goes on failing is mentioned so often at most, and so is one that comes and goes."""

MACHINE_ERRORS: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EMFILE,
        errno.ENFILE,
        errno.EIO,
        errno.EROFS,
        errno.ENOMEM,
        errno.ENODEV,
        errno.ENXIO,
        errno.ESTALE,
    }
)
"""What the system says when the machine is to blame: its disk, or limits of the process."""


class Trouble:
    """What keeps a store from being written; nothing if its last write was done."""

    def __init__(self, place: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self.reason = ""
        self._monotonic_s = monotonic_s
        self._logged_s: float | None = None
        self._is_told = False
        """Whether the log says that the store fails."""

    def failed(self, reason: str) -> None:
        """Note that a write failed for a reason that a person has to remove."""
        self.reason = reason
        self._is_told |= self.mention("written", reason)

    def mention(self, what: str, reason: str) -> bool:
        """Log that the store cannot be read or written; return False if that was so lately."""
        now_s = self._monotonic_s()
        if self._logged_s is not None and now_s - self._logged_s < LOGGED_EVERY_S:
            return False
        self._logged_s = now_s
        log.warning("%s cannot be %s: %s", self.place, what, reason)
        return True

    def worked(self) -> None:
        """Note that a write was done."""
        if not self.reason:
            return
        self.reason = ""
        if self._is_told:
            self._is_told = False
            log.warning("%s can be written again", self.place)


@runtime_checkable
class MayFail(Protocol):
    """A store that knows whether it can be written to."""

    trouble: Trouble
