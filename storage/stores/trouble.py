"""Whether a local store can be written to, judged by its last write.

A full or failing disk, or a process without descriptors, fails every write in the same way until
an operator fixes it. So the first failure is logged as a warning, later ones at a limited rate,
and the gateway reports that it is not ready (`service/process/store_watch.py`).
"""

import errno
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

log = logging.getLogger("riacho.stores")

LOGGED_EVERY_S: Final = 10.0
"""Minimum time between log lines about a store that fails permanently or intermittently."""

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
"""Errors caused by the machine: its disk, or limits of the process."""


class Trouble:
    """Why a store cannot be written to; empty if its last write succeeded."""

    def __init__(self, place: str, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        self.reason = ""
        self._monotonic_s = monotonic_s
        self._logged_s: float | None = None
        self._is_logged = False
        """Whether the failure was logged, so that the recovery is logged too."""

    def failed(self, reason: str) -> None:
        """Record that a write failed for a reason that an operator has to fix."""
        self.reason = reason
        self._is_logged |= self.mention("written", reason)

    def mention(self, what: str, reason: str) -> bool:
        """Log that the store cannot be read or written; return False if it was logged recently."""
        now_s = self._monotonic_s()
        if self._logged_s is not None and now_s - self._logged_s < LOGGED_EVERY_S:
            return False
        self._logged_s = now_s
        log.warning("%s cannot be %s: %s", self.place, what, reason)
        return True

    def worked(self) -> None:
        """Record that a write succeeded."""
        if not self.reason:
            return
        self.reason = ""
        if self._is_logged:
            self._is_logged = False
            log.warning("%s can be written again", self.place)


@runtime_checkable
class MayFail(Protocol):
    """A store that knows whether it can be written to."""

    trouble: Trouble
