"""How much of everything: a slice in every run of the suite, all of it with `make proof`."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

T = TypeVar("T")

VARIABLE: Final = "RIACHO_PROOF"

FULL: Final = bool(os.environ.get(VARIABLE))
"""Whether this is `make proof`: full sizes, and figures are checked against their bounds."""

MIB: Final = 1024 * 1024

ROUNDS: Final = 5 if FULL else 1
"""How often a scenario that has a random part is repeated, each time from another seed."""

only_proof = pytest.mark.skipif(not FULL, reason="part of `make proof`")


def some(all_of_them: Sequence[T], *slice_of_them: T) -> Sequence[T]:
    """Return all cases with `make proof`, and in other runs those of the slice."""
    return all_of_them if FULL else slice_of_them


PARTITIONS: Final = 100_000 if FULL else 2_000
POLLS: Final = 2_000 if FULL else 100
BOMBS: Final = 50 if FULL else 4
LARGE_BODIES: Final = 50 if FULL else 6

POLLS_SLOW_DOWN_MAX: Final = 2.0
"""Produce p50 beside `POLLS` waiting readers of the lane, against p50 without them."""

HEALTHY_MS_MAX: Final = 250.0
"""The longest that /healthy may take while bombs are refused."""

PEAK_BYTES_MAX: Final = 448 * MIB
"""Of the 512 MiB that a gateway may have; the rest is for what will share the process."""
