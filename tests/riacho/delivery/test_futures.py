"""A light future keeps every promise of the standard one."""

import concurrent.futures
import threading

import pytest

from riacho.delivery.futures import LightFuture


def test_a_result_that_came_first_is_there() -> None:
    future: LightFuture[int] = LightFuture()
    future.set_result(7)

    assert future.done()
    assert future.result(0) == 7
    assert future.exception(0) is None


def test_someone_who_waits_is_woken() -> None:
    future: LightFuture[int] = LightFuture()
    threading.Timer(0.01, future.set_result, [7]).start()

    assert future.result(10) == 7


def test_errors_are_raised() -> None:
    future: LightFuture[int] = LightFuture()
    future.set_exception(LookupError("no"))

    with pytest.raises(LookupError):
        future.result(0)


def test_callbacks_are_called_whether_early_or_late() -> None:
    future: LightFuture[int] = LightFuture()
    seen: list[str] = []

    future.add_done_callback(lambda _: seen.append("early"))
    future.set_result(1)
    future.add_done_callback(lambda _: seen.append("late"))

    assert seen == ["early", "late"]


def test_it_times_out_and_can_be_cancelled() -> None:
    future: LightFuture[int] = LightFuture()

    with pytest.raises(concurrent.futures.TimeoutError):
        future.result(0)
    assert future.cancel()
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(1)


def test_a_second_result_is_refused() -> None:
    future: LightFuture[int] = LightFuture()
    future.set_result(1)

    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(2)


def test_the_standard_helpers_take_it() -> None:
    futures: list[LightFuture[int]] = [LightFuture() for _ in range(3)]
    futures[1].set_result(1)
    threading.Timer(0.01, lambda: [futures[n].set_result(n) for n in (0, 2)]).start()

    done, pending = concurrent.futures.wait(futures, timeout=10)

    assert (len(done), len(pending)) == (3, 0)
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == {0, 1, 2}
