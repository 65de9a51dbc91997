"""Applies a group's assignment to its member: step by step, inside `poll`.

    advance ─▶ on_revoked ─▶ advance ─▶ on_assigned ─▶ advance ─▶ nothing more

Partitions are given up and taken only here, and the program's callbacks run between the steps.
A revoked partition is ours until `on_revoked` has returned; then the next heartbeat omits it, and
its new owner gets it. A member without a successful heartbeat for a session timeout hands out
nothing until the group confirms that it is still a member.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from riacho.consumer.assignment import Assignment
from riacho.consumer.group_calls import Subscription
from riacho.consumer.session import Session
from riacho.errors import FencedInstance
from riacho.records import TopicPartition


@dataclass(frozen=True, slots=True)
class Call:
    """A callback to make before the next step."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: list[TopicPartition]


class Membership:
    def __init__(
        self,
        session: Session,
        assignment: Assignment,
        before_revocation: Callable[[list[TopicPartition]], Awaitable[None]],
    ) -> None:
        self.session = session
        self._assignment = assignment
        self._before_revocation = before_revocation
        self._revoking: frozenset[TopicPartition] = frozenset()

    def subscribe(self, subscription: Subscription | None) -> None:
        """Change the subscription at the next `advance`. Callable from any thread."""
        self.session.subscription = subscription
        self.session.has_news = True

    def is_due(self) -> bool:
        """Whether `advance` has something to do. Callable from any thread."""
        return self.session.has_news or time.monotonic() > self.session.sure_until_s

    async def advance(self) -> Call | None:
        """Take the next step that the group requires; return its callback.

        Call it again after the callback, until it returns None. Raises the error that keeps
        this consumer out of its group.
        """
        session = self.session
        session.has_news = False
        session.start()
        self._finish_revocation()
        if session.is_lost:
            if (call := self._note_loss()) is not None:
                return call
        elif time.monotonic() > session.sure_until_s:
            session.sure_until_s = math.inf
            self._assignment.hold(is_held=True)
            session.hurry.set()
        self._raise_failure()
        return await self._next_call()

    async def closing(self) -> Call | None:
        """Return the callback to make before the session is closed, if any."""
        self._finish_revocation()
        if self.session.is_lost or self.session.beat is None:
            return self._note_loss()
        if not self.session.owned:
            return None
        self._revoking = self.session.owned
        return Call("revoked", sorted(self._revoking))

    async def close(self) -> None:
        self._finish_revocation()
        await self.session.close()

    async def _next_call(self) -> Call | None:
        session = self.session
        target: frozenset[TopicPartition] = frozenset()
        if session.beat is not None and session.subscription == session.joined:
            target = session.beat.assignment
        elif session.beat is not None:
            session.hurry.set()  # Leave as soon as all partitions are given up.
        if gone := session.owned - target:
            await self._before_revocation(sorted(gone))
            self._revoking = gone
            session.has_news = True
            return Call("revoked", sorted(gone))
        if new := target - session.owned:
            session.owned |= new
            self._assignment.add(sorted(new), "committed")
            session.has_news = True
            return Call("assigned", sorted(new))
        return None

    def _finish_revocation(self) -> None:
        gone, self._revoking = self._revoking, frozenset()
        if gone:
            self.session.owned -= gone
            self._assignment.remove(gone)
            self.session.hurry.set()

    def _note_loss(self) -> Call | None:
        session = self.session
        gone, session.owned = session.owned, frozenset()
        self._assignment.remove(gone)
        self._assignment.hold(is_held=False)
        session.is_lost = False
        session.hurry.set()
        if not gone:
            return None
        session.has_news = True
        return Call("lost", sorted(gone))

    def _raise_failure(self) -> None:
        failure = self.session.failure
        if failure is None:
            return
        self.session.has_news = True
        if not isinstance(failure, FencedInstance):  # Permanent: two instances must not alternate.
            self.session.failure = None
            self.session.hurry.set()
        raise failure
