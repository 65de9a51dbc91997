"""Requests to gateways that are retried until answered, and requests to end transactions."""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.checker.transaction_rules import (
    ABORTED,
    COMMITTED,
    FENCED,
    OUTDATED,
    REFUSED,
    UNAVAILABLE,
    UNKNOWN,
    Ending,
    Place,
    TransactionHistory,
)
from tests.simulation.hosts import Host
from tests.simulation.http import Net, Refused, call

DUPLICATE = "DUPLICATE_SEQUENCE_NUMBER"
STALE_MEMBER = {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"}


class Over(Exception):
    """This instance cannot continue: another one replaced it, or no gateway answers."""


@dataclass(frozen=True)
class Ended:
    answer: str
    next_epoch: tuple[int, int] | None = None
    is_final: bool = True
    """False: a retry makes sense."""


class Asking:
    def __init__(
        self,
        net: Net,
        chance: random.Random,
        now_s: Callable[[], float],
        trace: list[str],
        history: TransactionHistory,
    ) -> None:
        self.is_calm = False
        self._net = net
        self._chance = chance
        self._now_s = now_s
        self._trace = trace
        self._history = history

    @property
    def tries_max(self) -> int:
        return 100 if self.is_calm else 5

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        once: bool = False,
    ) -> Any:
        """Return an answer, or raise `Refused` or `TimeoutError`."""

        async def copy(host: Host) -> Any:
            outcome = "gave up"
            try:
                answer = await call(host, method, path, body, headers)
                outcome = "done"
                return answer
            except Refused as error:
                outcome = str(error)
                raise
            finally:
                self.note(f"{method} {path} {headers or ''} {outcome}")

        return await self._net.send(copy, once=once)

    async def persist(self, method: str, path: str, body: Any = None) -> Any:
        """Return an answer after any number of retries, or raise `Refused` or `Over`."""
        for _ in range(self.tries_max):
            try:
                return await self.call(method, path, body)
            except TimeoutError:
                pass
            except Refused as error:
                if error.code == FENCED:
                    raise Over("fenced") from error
                if not error.passes:
                    raise
            await self.pause()
        raise Over("nobody answers")

    async def ask(
        self,
        name: str,
        wants: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None = None,
    ) -> Ended:
        """Request the end of an attempt once, and return what is known about it then."""

        async def copy(host: Host) -> Ended:
            began_s = self._now_s()
            ended, bases = Ended(UNKNOWN, is_final=False), None
            try:
                answer = await call(host, "POST", path, body, headers)
                following = None
                if "epoch" in answer:
                    following = answer["producer_id"], answer["epoch"]
                ended = Ended(answer.get("state", COMMITTED), following)
                bases = _bases(answer)
            except Refused as error:
                ended = self._refused(name, error)
            finally:
                self._history.endings.append(
                    Ending(
                        name,
                        wants,
                        began_s,
                        self._now_s(),
                        ended.answer,
                        ended.next_epoch,
                        bases,
                    )
                )
                self.note(f"{wants} {name} {ended.answer} {ended.next_epoch}")
            return ended

        try:
            return await self._net.send(copy)
        except TimeoutError:
            return Ended(UNKNOWN, is_final=False)

    def _refused(self, name: str, error: Refused) -> Ended:
        if error.passes:
            return Ended(UNKNOWN if error.may_have_applied else UNAVAILABLE, is_final=False)
        if error.code in STALE_MEMBER:
            return Ended(OUTDATED)
        if error.code == DUPLICATE:
            return Ended(COMMITTED)  # It was committed long ago, so the answer has no details.
        if error.code not in {REFUSED, FENCED}:
            self.complain(name, error)
        return Ended(error.code)

    async def pause(self) -> None:
        await asyncio.sleep(0.02 + self._chance.random() * 0.2)

    def complain(self, who: str, error: Refused) -> None:
        self._history.errors.append(f"{who} at {self._now_s():.3f}: {error}: {error.detail}")

    def note(self, what: str) -> None:
        self._trace.append(f"{self._now_s():.6f} {what}")


def _bases(answer: Any) -> dict[Place, int] | None:
    if "results" not in answer or answer.get("state") == ABORTED:
        return None
    return {(one["topic"], one["partition"]): one["base_offset"] for one in answer["results"]}
