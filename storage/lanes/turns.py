"""Taking turns on a head that many processes commit to, none of which knows of the others.

One compare-and-set wins each round. If all who lost try again at once, a hundred writers make a
hundred attempts for every commit; if they wait and then try with the head they knew, they lose for
sure. So who has lost twice waits, at random, looks at the head anew, and tries at once:

- How long is learned: the *pace* grows with every race lost and shrinks with every commit, and is
  kept from one commit to the next. On a head that is known to be crowded even the first attempt
  waits, or else newcomers would always be faster.
- Who has waited for long waits less, so that nobody starves.
- After `COMMIT_S_MAX` it is given up, and the caller told that nothing was written.
"""

from typing import Final

from storage.errors import Contended
from storage.lanes.watch import COMMIT_S_MAX, LaneRuntime

FREE_LOSSES: Final = 1
"""So many races are lost without consequence: two who meet by chance need no order."""

PACE_S_MIN: Final = 0.01
PACE_S_MAX: Final = 1.0
GROWTH: Final = 1.6
DECAY: Final = 0.75

PATIENCE_S: Final = 0.5
"""Who has tried for so long waits half as long as the others, and so on."""


class Turns:
    """What one process has learned of how many others commit to a head."""

    def __init__(self, runtime: LaneRuntime) -> None:
        self._runtime = runtime
        self.pace_s = 0.0

    async def queue(self) -> bool:
        """Wait before a first attempt if the head is crowded; return whether that was so."""
        if self.pace_s <= PACE_S_MIN:
            return False
        await self._runtime.sleep(self._runtime.random() * self.pace_s)
        return True

    async def lost(self, attempt: int, began_s: float) -> bool:
        """Wait after a lost race; return whether that was so, and the head is to be read anew.

        Raises `Contended` if it has been tried for long enough.
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
