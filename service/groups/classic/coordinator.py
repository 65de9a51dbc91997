"""Classic groups at work: members meet, and each call waits until it can be answered.

All that is agreed on is in the item of the group, so any gateway answers any call, and a gateway
that dies takes nothing with it: the client calls another one, which finds the round as it is.

A round ends with the write in which its last member joins. If someone is late, a call that waits
ends it: once it has waited for the longest time that a member allows for a rebalance, counted from
when its gateway first saw this round. No clocks are compared, so a round may last longer than that,
and never less. Any number of gateways may end the same round: the first write does.

A member whose call waits is alive: its gateway gives the signs that its heartbeats would.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from functools import partial
from typing import Final

from service.groups.classic import rounds
from service.groups.classic.combining import Combiner
from service.groups.classic.living import Living
from service.groups.classic.lookout import Lookout
from service.groups.classic.rounds import Claimant, Joined, Joining
from service.groups.classic.shape import Phase
from service.groups.items import GroupItems, Known, parse_group_id
from service.groups.session_expiry import SessionExpiry
from service.groups.state import CLASSIC_BYTES_MAX, Group
from service.settings import Settings
from service.world.clock import World
from storage.errors import GroupFull, InvalidSessionTimeout, RebalanceInProgress, RiachoError
from storage.stores.metadata import MetadataStore

ROUNDS_KEPT_MAX: Final = 10_000
"""Maximum number of groups whose rounds are watched; the ones seen last are."""

EXPECTED_S_MAX: Final = 1.0
"""How long the first round of a group waits for a member that was told to join with an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicLimits:
    session_ms_min: int = 6_000
    session_ms_max: int = 1_800_000
    initial_delay_ms: int = 0
    """How long the first round of a group waits for more members, each time that one comes."""


def limits_of(settings: Settings) -> ClassicLimits:
    return ClassicLimits(
        session_ms_min=settings.group_min_session_timeout_ms,
        session_ms_max=settings.group_max_session_timeout_ms,
        initial_delay_ms=settings.group_initial_rebalance_delay_ms or 0,
    )


@dataclass(frozen=True, slots=True)
class IdRequired:
    """The reply to a new member that must join again, with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The reply to a member that asks for its assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Leaving:
    """A member that is to be removed, named by either id or both."""

    member_id: str
    instance_id: str | None = None


@dataclass(slots=True)
class _Round:
    """A round as this process has seen it."""

    key: tuple[int, Phase]
    began_s: float
    grew_s: float
    member_count: int


def _never() -> None:
    """Stop nothing."""


class ClassicGroups:
    def __init__(
        self,
        metadata: MetadataStore,
        items: GroupItems,
        expiry: SessionExpiry,
        world: World,
        limits: ClassicLimits,
    ) -> None:
        self.limits = limits
        self._world = world
        self._lookout = Lookout(metadata, items, expiry, world)
        self._living = Living(metadata, world)
        self._combiner = Combiner(metadata, items)
        self._rounds: dict[str, _Round] = {}
        self._expected = _Expected(world)

    # Joining

    async def join(
        self,
        group_id: str,
        joining: Joining,
        *,
        needs_id: bool = True,
        stop: Callable[[], None] = _never,
    ) -> Joined | IdRequired:
        """Join the round of a group, and return when it is over.

        A new dynamic member is only told its id if `needs_id`; then a reply that is lost leaves
        nobody behind for whom the others would wait. `stop` is called now and then while this
        waits; the wait ends with what it raises.
        """
        self._check(group_id, joining)
        if joining.is_new:
            name = joining.instance_id or joining.client
            member_id = rounds.new_id(name, self._world.random_bytes(16))
            joining = changed(joining, member_id=member_id)
            if needs_id and joining.instance_id is None:
                self._expected.add(group_id, member_id)
                await self._confirmed(group_id, partial(rounds.check_fits, joining=joining))
                return IdRequired(member_id)
        self._expected.remove(group_id, joining.member_id)
        return await self._meet(group_id, joining, stop)

    def _check(self, group_id: str, joining: Joining) -> None:
        parse_group_id(group_id)
        lowest, highest = self.limits.session_ms_min, self.limits.session_ms_max
        if not lowest <= joining.session_timeout_ms <= highest:
            raise InvalidSessionTimeout(
                f"the session timeout must be from {lowest} to {highest} ms, not"
                f" {joining.session_timeout_ms}"
            )
        if sum(len(name) + len(data) for name, data in joining.protocols) > CLASSIC_BYTES_MAX:
            raise GroupFull("the protocols of the member are larger than a group may be")

    async def _meet(self, group_id: str, joining: Joining, stop: Callable[[], None]) -> Joined:
        member_id = joining.member_id
        until_s = self._world.monotonic_s() + joining.rebalance_timeout_ms / 1000
        known = await self._join(group_id, joining)
        joining = changed(joining, is_new=False)
        while True:
            group = known.group
            rounds.check_member(group, member_id, joining.instance_id)
            reply = rounds.joined(group, member_id)
            if reply is not None:
                await self._sign(group_id, group, member_id)
                return reply
            if not rounds.has_joined(group, member_id):
                # The round that it has joined is over, and the next one has begun already.
                if self._world.monotonic_s() >= until_s:
                    raise RebalanceInProgress("the members of the group meet again; join again")
                known = await self._join(group_id, joining)
            elif self._is_over(group_id, group):
                known = await self._combiner.apply(
                    group_id, partial(rounds.complete, generation=group.generation + 1)
                )
            else:
                known = await self._wait(group_id, known, member_id, stop)

    async def _join(self, group_id: str, joining: Joining) -> Known:
        waits = self.limits.initial_delay_ms > 0 or self._expected.is_any(group_id)
        return await self._combiner.apply(
            group_id, lambda group: rounds.join(group, joining, waits=waits)
        )

    # After joining

    async def sync(
        self,
        group_id: str,
        claimant: Claimant,
        assignments: Mapping[str, bytes],
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
        stop: Callable[[], None] = _never,
    ) -> Synced:
        """Return what the member is assigned, once its leader has said so."""
        parse_group_id(group_id)

        def transition(group: Group) -> Group:
            return rounds.sync(group, claimant, protocol_type, protocol, assignments)

        known = await self._confirmed(group_id, transition)
        if transition(known.group) is not known.group:
            known = await self._combiner.apply(group_id, transition)
        while True:
            group = known.group
            assignment = rounds.synced(group, claimant)
            if assignment is not None:
                assert group.classic is not None
                await self._sign(group_id, group, claimant.member_id)
                return Synced(
                    protocol_type=group.classic.protocol_type,
                    protocol=group.classic.protocol,
                    assignment=assignment,
                )
            if self._is_over(group_id, group):
                known = await self._combiner.apply(
                    group_id, partial(rounds.drop_leader, generation=group.generation)
                )
            else:
                known = await self._wait(group_id, known, claimant.member_id, stop)

    async def heartbeat(self, group_id: str, claimant: Claimant) -> None:
        """Keep the session of the member alive; raise if it should know of something.

        A member that is to join again is alive, too.
        """
        parse_group_id(group_id)
        try:
            known = await self._confirmed(
                group_id, lambda group: rounds.check_current(group, claimant)
            )
        except RebalanceInProgress:
            known = await self._lookout.recent(group_id)
            await self._sign(group_id, known.group, claimant.member_id)
            raise
        await self._sign(group_id, known.group, claimant.member_id)

    async def leave(
        self, group_id: str, leaving: Sequence[Leaving]
    ) -> list[tuple[Leaving, RiachoError | None]]:
        """End the sessions of these members now; return the error of each that is not one."""
        parse_group_id(group_id)
        found: dict[int, str] = {}
        errors: dict[int, RiachoError] = {}

        def transition(group: Group) -> Group:
            errors.clear()
            for number, one in enumerate(leaving):
                try:
                    member_id = rounds.found(group, one.member_id, one.instance_id)
                except RiachoError as error:
                    # If it was there before, an earlier attempt has removed it.
                    if found.get(number) in (None, *group.members):
                        errors[number] = error
                else:
                    found[number] = member_id
            return rounds.leave(group, found.values())

        await self._combiner.apply(group_id, transition)
        return [(one, errors.get(number)) for number, one in enumerate(leaving)]

    # Parts

    async def _confirmed(self, group_id: str, check: Callable[[Group], object]) -> Known:
        """Return the group that passed `check`; a refusal must be of the group as it is now."""
        known = await self._lookout.recent(group_id)
        try:
            check(known.group)
        except RiachoError:
            known = await self._lookout.fresh(group_id)
            check(known.group)
        return known

    async def _wait(
        self, group_id: str, known: Known, member_id: str, stop: Callable[[], None]
    ) -> Known:
        """Return the group as it is a little later, for a call of a member that waits."""
        stop()
        news = await self._lookout.next(group_id, known)
        stop()
        if member_id in news.group.members:
            # A sign that is not written is no reason to give up; the next one may be.
            with suppress(RiachoError):
                await self._sign(group_id, news.group, member_id)
        return news

    async def _sign(self, group_id: str, group: Group, member_id: str) -> None:
        session_ms = group.members[member_id].session_timeout_ms
        await self._living.sign(group_id, member_id, session_ms, group.generation)

    def _is_over(self, group_id: str, group: Group) -> bool:
        """Whether this process has seen the present round for as long as a round may last."""
        assert group.classic is not None
        now_s = self._world.monotonic_s()
        key = group.generation, group.classic.phase
        count = len(group.members)
        seen = self._rounds.pop(group_id, None)
        if seen is None or seen.key != key:
            seen = _Round(key, now_s, now_s, count)
        elif count > seen.member_count:
            seen.grew_s, seen.member_count = now_s, count
        self._rounds[group_id] = seen
        if len(self._rounds) > ROUNDS_KEPT_MAX:
            del self._rounds[next(iter(self._rounds))]
        limit_s = max(m.rebalance_timeout_ms for m in group.members.values()) / 1000
        if now_s - seen.began_s >= limit_s:
            return True
        if not group.classic.is_first or self._expected.is_any(group_id):
            return False
        return now_s - seen.grew_s >= self.limits.initial_delay_ms / 1000


class _Expected:
    """Members that were told to join with an id a moment ago, and have not done it yet.

    They come at once, so the first round of a group waits for them: if several start together, they
    then meet in one round and not in two.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._since_s: dict[str, dict[str, float]] = {}

    def add(self, group_id: str, member_id: str) -> None:
        self.is_any(group_id)
        self._since_s.setdefault(group_id, {})[member_id] = self._world.monotonic_s()
        if len(self._since_s) > ROUNDS_KEPT_MAX:
            del self._since_s[next(iter(self._since_s))]

    def remove(self, group_id: str, member_id: str) -> None:
        self._since_s.get(group_id, {}).pop(member_id, None)

    def is_any(self, group_id: str) -> bool:
        """Whether somebody is expected in this group; forgets those who did not come."""
        oldest_s = self._world.monotonic_s() - EXPECTED_S_MAX
        since_s = self._since_s.pop(group_id, {})
        left = {m: at_s for m, at_s in since_s.items() if at_s > oldest_s}
        if left:
            self._since_s[group_id] = left
        return bool(left)
