"""Figures of scenarios: printed when the run ends, and kept where `make proof` says."""

import os
from pathlib import Path
from typing import Final

VARIABLE: Final = "RIACHO_PROOF_FIGURES"

figures: list[tuple[str, str]] = []


def report(what: str, figure: str) -> None:
    """Note a figure; `conftest.py` prints all of them."""
    figures.append((what, figure))
    if path := os.environ.get(VARIABLE):
        with Path(path).open("a") as sink:
            sink.write(f"{what}: {figure}\n")
