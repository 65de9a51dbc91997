"""The audit log: one JSON line for every refusal and every administrative change.

A line says who (principal, credential, door, peer), what (operation, resource), the verdict and the
request. It never holds a value, a secret or a body: callers pass names, and numbers of limits.

    {"at": "2026-01-02T03:04:05.678Z", "event": "refused", "verdict": "TOPIC_AUTHORIZATION_FAILED",
     "principal": "User:ana", "credential": "k7…", "door": "key", "peer": "10.0.0.7",
     "operation": "WRITE", "resource_type": "TOPIC", "resource": "orders", "request_id": "9f…"}

Refusals cost the caller nothing, so their lines are limited: in each second those of one
kind (verdict, principal and peer), and those of one verdict. A line `left_out` then counts what was
left out. Changes are never left out.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from service.world.clock import World
from storage.tasks import detached

log = logging.getLogger("riacho.audit")

KIND_LINES_MAX: Final = 10
"""Maximum number of lines a second about refusals of one kind."""

VERDICT_LINES_MAX: Final = 100
"""Maximum number of lines a second about refusals with one verdict: an attacker can use many names
and addresses. Verdicts are apart, so that a flood of one hides no other."""

KINDS_MAX: Final = 1000
"""Maximum number of kinds that are counted apart in a second."""

NAME_CHARS_MAX: Final = 300
"""Longer names are cut: a caller chooses them."""

DONE: Final = "DONE"
"""The verdict of a change."""

Plain = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who made a request, as far as it is known."""

    principal: str = ""
    credential_id: str = ""
    """Of the credential; never the credential itself."""
    door: str = ""
    peer: str = ""
    request_id: str = ""


class AuditLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line, in the order in which its fields are written."""

    at: str
    event: str
    """refused, changed or left_out."""
    verdict: str
    """The code of the error, or `DONE`."""
    principal: str = ""
    credential: str = ""
    door: str = ""
    peer: str = ""
    operation: str = ""
    resource_type: str = ""
    resource: str = ""
    request_id: str = ""
    why: str = ""
    details: Mapping[str, Plain] = {}
    left_out: int = 0


def to_log(line: bytes) -> None:
    """Write a line to the logger `riacho.audit`."""
    log.info("%s", line.decode())


Sink = Callable[[bytes], None]
"""Takes a line; must not block, and must not raise."""


class LineQueue(Protocol):
    """Takes lines, and writes them later."""

    def write(self, line: bytes) -> None:
        """As a `Sink`."""

    async def aclose(self) -> None:
        """Write what is queued."""


_Kind = tuple[str, str, str]


class Audit:
    """Writes lines to all `sinks`; without any, nothing."""

    def __init__(self, world: World, sinks: Sequence[Sink] = (to_log,)) -> None:
        self._world = world
        self._sinks = list(sinks)
        self._queues: list[LineQueue] = []
        self._encoder = msgspec.json.Encoder()
        self._second = -1
        self._written: Counter[_Kind | str] = Counter()
        """In this second, by kind and by verdict."""
        self._left_out: Counter[_Kind] = Counter()
        self._ending: asyncio.Task[None] | None = None

    def also_to(self, queue: LineQueue) -> None:
        """Write to `queue`, too, from now on."""
        self._sinks.append(queue.write)
        self._queues.append(queue)

    def refused(
        self,
        verdict: str,
        actor: Actor,
        *,
        operation: str = "",
        resource_type: str = "",
        resource: str = "",
        why: str = "",
    ) -> None:
        """Record that a request was refused with the error code `verdict`."""
        if self._sinks and self._has_room((verdict, _cut(actor.principal), _cut(actor.peer))):
            self._write(
                "refused",
                verdict,
                actor,
                operation=operation,
                resource_type=resource_type,
                resource=_cut(resource),
                why=_cut(why),
            )

    def changed(
        self,
        actor: Actor,
        *,
        operation: str = "",
        resource_type: str = "",
        resource: str = "",
        details: Mapping[str, Plain] | None = None,
    ) -> None:
        """Record an administrative change that was made; `details` must hold no secrets."""
        if self._sinks:
            self._write(
                "changed",
                DONE,
                actor,
                operation=operation,
                resource_type=resource_type,
                resource=_cut(resource),
                details=details or {},
            )

    def flush(self) -> None:
        """Write how many lines were left out so far."""
        left_out, self._left_out = self._left_out, Counter()
        for (verdict, principal, peer), count in left_out.items():
            who = Actor(principal=principal, peer=peer)
            self._write("left_out", verdict, who, left_out=count)

    async def aclose(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        self.flush()
        for queue in self._queues:
            await queue.aclose()

    def _has_room(self, kind: _Kind) -> bool:
        """Whether one more line of this kind may be written in this second."""
        second = self._world.now_ms() // 1000
        if second != self._second:
            self._second = second
            self._written.clear()
            self.flush()
        verdict = kind[0]
        if len(self._written) >= KINDS_MAX and kind not in self._written:
            kind = (verdict, "", "")
        if self._written[kind] < KIND_LINES_MAX and self._written[verdict] < VERDICT_LINES_MAX:
            self._written[kind] += 1
            self._written[verdict] += 1
            return True
        if len(self._left_out) >= KINDS_MAX and kind not in self._left_out:
            kind = (verdict, "", "")
        self._left_out[kind] += 1
        if self._ending is None or self._ending.done():
            # Detached: a host that freezes this process need not wait for it. Then the next refusal
            # writes the count.
            self._ending = detached(self._end_second())
        return False

    async def _end_second(self) -> None:
        await self._world.sleep(1.0)
        self.flush()

    def _write(
        self,
        event: str,
        verdict: str,
        actor: Actor,
        *,
        operation: str = "",
        resource_type: str = "",
        resource: str = "",
        why: str = "",
        details: Mapping[str, Plain] | None = None,
        left_out: int = 0,
    ) -> None:
        line = AuditLine(
            at=self._now(),
            event=event,
            verdict=verdict,
            principal=_cut(actor.principal),
            credential=_cut(actor.credential_id),
            door=actor.door,
            peer=_cut(actor.peer),
            operation=operation,
            resource_type=resource_type,
            resource=resource,
            request_id=actor.request_id,
            why=why,
            details=details or {},
            left_out=left_out,
        )
        encoded = self._encoder.encode(line)
        for sink in self._sinks:
            sink(encoded)

    def _now(self) -> str:
        second, rest = divmod(self._world.now_ms(), 1000)
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)) + f".{rest:03d}Z"


def _cut(text: str) -> str:
    """Return `text` as it can be written: callers choose names, of any length."""
    return text[:NAME_CHARS_MAX].encode(errors="replace").decode()
