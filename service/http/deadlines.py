"""Deadlines of a request, set by what serves it: when it must be answered, how long it may wait."""

from typing import Final

from starlette.requests import Request
from starlette.types import Scope

WAIT_SHARE: Final = 0.85
"""Fraction of the time a request may wait for records; the rest is for reading and sending."""

_ANSWER: Final = "riacho.answer_until_s"
_WAIT: Final = "riacho.wait_until_s"


def set_deadline(scope: Scope, now_s: float, seconds: float) -> None:
    """Demand the answer within `seconds`, unless the scope has an earlier deadline."""
    until_s = now_s + max(0.0, seconds)
    earlier_s = answer_until_s(scope)
    if earlier_s is None or until_s < earlier_s:
        scope[_ANSWER] = until_s
        scope[_WAIT] = now_s + WAIT_SHARE * (until_s - now_s)


def answer_until_s(scope: Scope) -> float | None:
    """When the request must be answered, by the gateway's clock; None: at any time."""
    until_s: float | None = scope.get(_ANSWER)
    return until_s


def wait_until_s(request: Request) -> float | None:
    """When the request must stop waiting for records, by the gateway's clock; None: never."""
    until_s: float | None = request.scope.get(_WAIT)
    return until_s


def wait_s(request: Request, wanted_s: float, now_s: float) -> float:
    """Return how long the request may wait, at most `wanted_s`."""
    until_s = wait_until_s(request)
    return wanted_s if until_s is None else max(0.0, min(wanted_s, until_s - now_s))
