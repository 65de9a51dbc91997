"""Calls that stay open, counted by principal."""

import pytest

from service.security.quotas.open_calls import RETRY_MS, OpenCalls
from storage.errors import QuotaExceeded


def test_a_principal_has_a_limit_of_its_own() -> None:
    calls = OpenCalls("tails", 2)
    first = calls.take("User:ana")
    calls.take("User:ana")

    with pytest.raises(QuotaExceeded, match="2 tails") as refused:
        calls.take("User:ana")
    assert refused.value.throttle_ms == RETRY_MS
    calls.take("User:bob")

    first.close()
    first.close()  # Only once.
    calls.take("User:ana")
    with pytest.raises(QuotaExceeded):
        calls.take("User:ana")


def test_a_call_ends_with_its_context_even_if_that_fails() -> None:
    calls = OpenCalls("tails", 1)
    with pytest.raises(RuntimeError), calls.take("User:ana"):
        raise RuntimeError

    assert calls.principals == 0
