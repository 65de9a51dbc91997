"""From what happened to what a response says of one topic, resource or user."""

from collections import Counter
from collections.abc import Hashable, Iterable
from types import TracebackType
from typing import TypeVar

from service.kafka.failures import Asked, code_of, throttle_ms_of
from service.kafka.protocol.error_codes import ErrorCode
from service.security.caller import Caller
from storage.errors import RiachoError

K = TypeVar("K", bound=Hashable)


class KafkaRefusal(Exception):
    """A request that Kafka refuses with this code and text."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Judged:
    """Runs its body and keeps, instead of raising it, what the response says of it.

    Other errors than refusals are bugs, and pass.
    """

    __slots__ = ("_asked", "_caller", "code", "text", "throttle_ms")

    def __init__(self, caller: Caller, asked: Asked = Asked.ADMIN) -> None:
        self._caller = caller
        self._asked = asked
        self.code = ErrorCode.NONE
        self.text: str | None = None
        self.throttle_ms = 0

    @property
    def is_done(self) -> bool:
        return self.code is ErrorCode.NONE

    def __enter__(self) -> "Judged":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, KafkaRefusal):
            self.code = error.code
        elif isinstance(error, RiachoError):
            self.code = code_of(error, self._asked)
        else:
            return False
        self.throttle_ms = throttle_ms_of(error)
        self.text = self._caller.outer_text(str(error))
        return True


def repeated(names: Iterable[K]) -> frozenset[K]:
    """Return what occurs more than once."""
    return frozenset(name for name, count in Counter(names).items() if count > 1)
