"""A light future keeps every promise of the standard one."""

import concurrent.futures
import threading

import pytest

from riacho.delivery.futures import LightFuture


def test_a_result_that_is_set_already_is_returned_at_once() -> None:
    future: LightFuture[int] = LightFuture()
    future.set_result(7)

    assert future.done()
    assert future.result(0) == 7
    assert future.exception(0) is None


def test_a_waiting_thread_is_woken_by_the_result() -> None:
    future: LightFuture[int] = LightFuture()
    threading.Timer(0.01, future.set_result, [7]).start()

    assert future.result(120) == 7


def test_errors_are_raised() -> None:
    future: LightFuture[int] = LightFuture()
    future.set_exception(LookupError("no"))

    with pytest.raises(LookupError):
        future.result(0)


def test_callbacks_added_before_or_after_the_result_are_called() -> None:
    future: LightFuture[int] = LightFuture()
    seen: list[str] = []

    future.add_done_callback(lambda _: seen.append("early"))
    future.set_result(1)
    future.add_done_callback(lambda _: seen.append("late"))

    assert seen == ["early", "late"]


def test_a_future_can_time_out_and_be_cancelled() -> None:
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


def test_the_helpers_of_concurrent_futures_accept_it() -> None:
    futures: list[LightFuture[int]] = [LightFuture() for _ in range(3)]
    futures[1].set_result(1)
    threading.Timer(0.01, lambda: [futures[n].set_result(n) for n in (0, 2)]).start()

    done, pending = concurrent.futures.wait(futures, timeout=60)

    assert (len(done), len(pending)) == (3, 0)
    assert {f.result() for f in concurrent.futures.as_completed(futures)} == {0, 1, 2}
