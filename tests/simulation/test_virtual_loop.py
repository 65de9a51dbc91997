"""The clock of the simulation moves on by itself, never back, and never stands still."""

from tests.simulation.virtual_loop import RESOLUTION_S, VirtualLoop


def test_a_timer_finds_its_time_come() -> None:
    # A waiter that computes how much time is left, and waits for that, must end.
    loop = VirtualLoop()
    seen: list[float] = []
    first_s, second_s = 16.0, 16.0 + RESOLUTION_S / 2
    for when_s in (first_s, second_s):
        loop.call_at(when_s, lambda when_s=when_s: seen.append(when_s - loop.time()))
    loop.call_at(20.0, loop.stop)

    loop.run_forever()
    loop.close()

    assert seen[0] <= 0
    assert seen[1] <= 0
