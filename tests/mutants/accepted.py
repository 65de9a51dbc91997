"""Accepted survivors: a file for each module, with reasons and names.

# Why none of these can be observed from outside.
append: `a < b` → `a <= b`
append: without `cache.clear()`
"""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "accepted"


def read(module: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the reason for each accepted mutant of the module, by its name."""
    path = folder / (module.removesuffix(".py").replace("/", ".") + ".txt")
    if not path.exists():
        return {}
    reasons: dict[str, str] = {}
    reason, goes_on = "", False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#"):
            text = line.removeprefix("#").strip()
            reason, goes_on = (f"{reason} {text}" if goes_on else text), True
        elif line.strip():
            goes_on = False
            if not reason:
                raise ValueError(f"{path.name}, line {number}: say why before what")
            if line in reasons:
                raise ValueError(f"{path.name}, line {number}: this was said before")
            reasons[line] = reason
    return reasons
