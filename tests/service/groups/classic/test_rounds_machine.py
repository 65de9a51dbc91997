"""Any order of calls of a classic group keeps its rules. Pure."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from service.groups.classic import rounds
from service.groups.classic.shape import Classic, Phase
from service.groups.state import Group, decode, encode
from storage.errors import RiachoError
from tests.examples import few
from tests.service.groups.classic.makers import again, joining, me

NAMES = ["a", "b", "c", "d"]
PROTOCOLS = [("x",), ("x", "y"), ("y", "x")]


class RoundsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = Group()
        self.count = 0
        self.leaders: dict[int, str] = {}
        """By generation: who was told to assign in it."""
        self.shares: dict[int, dict[str, bytes]] = {}
        """By generation: what its leader has brought."""

    def change(self, new: Group) -> None:
        assert new.generation >= self.group.generation
        self.group = new

    @rule(protocols=st.sampled_from(PROTOCOLS), static=st.booleans(), waits=st.booleans())
    def come(self, protocols: tuple[str, ...], static: bool, waits: bool) -> None:
        self.count += 1
        about = joining(
            f"m{self.count}",
            *protocols,
            instance_id=NAMES[self.count % len(NAMES)] if static else None,
        )
        new = rounds.join(self.group, about, waits=waits)
        assert rounds.join(new, about, waits=waits) is new
        self.change(new)

    @precondition(lambda self: self.group.members)
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def join_again(self, data: st.DataObject, protocols: tuple[str, ...]) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.group.members)))
        instance_id = self.group.members[member_id].instance_id
        about = again(member_id, *protocols, instance_id=instance_id)
        new = rounds.join(self.group, about)
        assert rounds.has_joined(new, member_id) or rounds.joined(new, member_id) is not None
        self.change(new)

    @precondition(lambda self: self.group.members)
    @rule(data=st.data(), is_old=st.booleans())
    def sync(self, data: st.DataObject, is_old: bool) -> None:
        member_id = data.draw(st.sampled_from(sorted(self.group.members)))
        self.count += 1
        claimant = me(self.group, member_id)
        if is_old:
            claimant = rounds.Claimant(member_id=member_id, generation=claimant.generation - 1)
        brought = dict.fromkeys(self.group.members, b"%d" % self.count)
        try:
            new = rounds.sync(self.group, claimant, None, None, brought)
        except RiachoError:
            assert is_old or self.classic.phase is Phase.JOINING
            return
        assert not is_old
        if new is not self.group:
            assert self.classic.leader == member_id
            assert self.group.generation not in self.shares
            self.shares[self.group.generation] = brought
        self.change(new)

    @precondition(lambda self: self.group.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.sampled_from(sorted(self.group.members)), min_size=1))
        new = rounds.leave(self.group, gone)
        assert not gone & set(new.members)
        assert rounds.leave(new, gone) is new
        self.change(new)

    @rule()
    def run_out(self) -> None:
        """End the present round, as one does who has waited for long enough."""
        before = self.group
        new = rounds.complete(before, before.generation + 1)
        new = rounds.drop_leader(new, before.generation)
        self.change(new)

    @property
    def classic(self) -> Classic:
        return self.group.classic or Classic()

    @invariant()
    def one_leader_in_a_generation(self) -> None:
        if self.classic.phase is Phase.SYNCING:
            leader = self.classic.leader
            assert self.leaders.setdefault(self.group.generation, leader) == leader
            reply = rounds.joined(self.group, leader)
            assert reply is not None
            assert {m for m, _, _ in reply.members} == set(self.group.members)

    @invariant()
    def the_parts_agree(self) -> None:
        classic = self.classic
        assert set(classic.members) == set(self.group.members)
        assert (classic.leader in classic.members) is bool(self.group.members)
        if self.group.members and classic.phase is not Phase.JOINING:
            assert all(
                classic.protocol in dict(known.protocols) for known in classic.members.values()
            )

    @invariant()
    def a_round_that_all_have_joined_is_over(self) -> None:
        if self.group.members and self.classic.phase is Phase.JOINING:
            has_all = all(rounds.has_joined(self.group, m) for m in self.group.members)
            assert not has_all or self.classic.is_first

    @invariant()
    def shares_are_those_of_the_leader(self) -> None:
        if self.group.members and self.classic.phase is Phase.STABLE:
            brought = {*self.shares[self.group.generation].values(), b""}
            assert {known.assignment for known in self.classic.members.values()} <= brought

    @invariant()
    def it_can_be_stored(self) -> None:
        assert decode(encode(self.group)) == self.group


TestRounds = RoundsMachine.TestCase
TestRounds.settings = few
