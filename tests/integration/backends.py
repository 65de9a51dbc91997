"""The stores that tests run on: embedded ones and those of AWS; all of them, or one."""

from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.torture.sizes import some

BACKENDS: Final[Sequence[Any]] = ("embedded", pytest.param("cloud", marks=pytest.mark.aws))

on_one_backend = pytest.mark.parametrize(
    "deployment", some(BACKENDS, "embedded"), indirect=True, scope="module"
)
"""For what is the same on every backend, and takes long; with `make proof`, it runs on all.

That the stores are the same to those above them, the other files of this folder see.
"""
