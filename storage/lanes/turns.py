"""Back-off on a head that many processes commit to without knowing of each other.

One compare-and-set wins each round. If all losers retry at once, a hundred writers make a hundred
attempts for every commit. If they wait and then retry with the head they knew, they are sure to
lose. So a writer that has lost twice waits a random time, reads the head again, and retries at
once:

- The wait is learned: the *pace* grows with every lost race, shrinks with every commit, and is
  kept from one commit to the next. On a head known to be crowded even the first attempt waits,
  or else new writers would always win.
- A writer that has been trying for long waits less, so that none starves.
- After `COMMIT_S_MAX` the writer gives up and reports that nothing was written.
"""

from typing import Final

from storage.errors import Contended
from storage.lanes.watch import COMMIT_S_MAX, LaneRuntime

FREE_LOSSES: Final = 1
"""Back off only after this many lost races: a single collision by chance needs no back-off."""

PACE_S_MIN: Final = 0.01
PACE_S_MAX: Final = 1.0
GROWTH: Final = 1.6
DECAY: Final = 0.75

PATIENCE_S: Final = 0.5
"""After this time a writer waits half as long, after twice this time a third, and so on."""


class Turns:
    """What this process has learned about the contention on one head."""

    def __init__(self, runtime: LaneRuntime) -> None:
        self._runtime = runtime
        self.pace_s = 0.0

    async def queue(self) -> bool:
        """Wait before a first attempt if the head is crowded; return whether it waited."""
        if self.pace_s <= PACE_S_MIN:
            return False
        await self._runtime.sleep(self._runtime.random() * self.pace_s)
        return True

    async def lost(self, attempt: int, began_s: float) -> bool:
        """Wait after a lost race; return whether it waited, so that the head must be read again.

        Raises `Contended` after more than `COMMIT_S_MAX`.
        """
        waited_s = self._runtime.monotonic_s() - began_s
        if waited_s > COMMIT_S_MAX:
            raise Contended(f"others committed first for {COMMIT_S_MAX:.0f} s; send it again")
        if attempt < FREE_LOSSES:
            return False
        self.pace_s = min(PACE_S_MAX, max(PACE_S_MIN, self.pace_s * GROWTH))
        share = 1 / (1 + waited_s / PATIENCE_S)
        await self._runtime.sleep(self._runtime.random() * self.pace_s * share)
        return True

    def won(self) -> None:
        self.pace_s = self.pace_s * DECAY if self.pace_s > PACE_S_MIN else 0.0
