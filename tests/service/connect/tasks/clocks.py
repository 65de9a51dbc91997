"""A clock for tests that moves only when somebody sleeps."""

from service.world.clock import World


class SteppedClock:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_s += seconds

    @property
    def world(self) -> World:
        return World(
            now_ms=lambda: int(self.now_s * 1000),
            monotonic_s=lambda: self.now_s,
            sleep=self.sleep,
            random=lambda: 0.5,
            random_bytes=lambda count: bytes(count),
        )
