"""How many cases are made up: few in every run, as many as you like when asked.

RIACHO_FUZZ_CASES=1000 pytest tests/fuzz
"""

import os

from hypothesis import HealthCheck, Phase, settings

ASKED = int(os.environ.get("RIACHO_FUZZ_CASES", "0"))


def cases(default: int) -> settings:
    """Return settings for as many cases as were asked for; the same ones each time."""
    return settings(
        max_examples=ASKED or default,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
