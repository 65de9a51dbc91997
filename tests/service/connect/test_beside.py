"""How soon a runner beside a gateway is started again."""

from service.connect.running.beside import RESTART_S_MAX, STEADY_S, next_pause_s


def test_the_first_restart_is_quick_and_none_takes_longer_than_a_lease() -> None:
    pauses = [0.0]
    for _ in range(12):
        pauses.append(next_pause_s(pauses[-1], lasted_s=1.0))

    assert pauses[1:4] == [0.2, 0.4, 0.8]
    assert pauses[-1] == RESTART_S_MAX <= 10.0
    assert next_pause_s(pauses[-1], lasted_s=STEADY_S + 1) == 0.0
    assert next_pause_s(pauses[-1], lasted_s=None) == 0.0
