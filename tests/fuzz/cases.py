"""The number of generated cases: few by default, more if requested.

RIACHO_FUZZ_CASES=1000 pytest tests/fuzz
"""

import os

from hypothesis import HealthCheck, Phase, settings

ASKED = int(os.environ.get("RIACHO_FUZZ_CASES", "0"))


def cases(default: int) -> settings:
    """Return settings for as many cases as were asked for; the profile says which ones."""
    return settings(
        max_examples=ASKED or default,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
