"""The context that Lambda passes to a call."""

from typing import Any


def left_s(context: Any) -> float | None:
    """Return how long the call may still take; None if the context does not say.

    Manual invocations and emulators often pass no context.
    """
    remaining_ms = getattr(context, "get_remaining_time_in_millis", None)
    return None if remaining_ms is None else float(remaining_ms()) / 1000
