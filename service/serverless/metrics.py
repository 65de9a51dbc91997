"""Metrics of a function as log lines, which CloudWatch turns into metrics.

    {"_aws": {"Timestamp": …, "CloudWatchMetrics": [{"Namespace": "Riacho", …}]}, "JobStarted": 1}

This is the embedded metric format: no call, no permission, and no cost but that of the metric.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Final, TextIO

NAMESPACE: Final = "Riacho"

_UNITS: Final = {"SecondsSinceSuccess": "Seconds"}


def line(metrics: Mapping[str, float], dimensions: Mapping[str, str], now_ms: int) -> str:
    """Return the log line that reports `metrics` to CloudWatch."""
    about = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name, "Unit": _UNITS.get(name, "Count")} for name in metrics],
    }
    return json.dumps(
        {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [about]}, **dimensions, **metrics}
    )


class MetricLog:
    """Writes metric lines to standard output."""

    def __init__(self, now_ms: Callable[[], int], stream: TextIO | None = None) -> None:
        self._now_ms = now_ms
        self._stream = stream

    def write(self, metrics: Mapping[str, float], **dimensions: str) -> None:
        stream = self._stream or sys.stdout
        stream.write(line(metrics, dimensions, self._now_ms()) + "\n")
        stream.flush()
