"""The loop of a source alone: what one commit has, and when a poll is given up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from service.connect.data.errors import RetriableFault, TaskFault
from service.connect.data.log_records import LogRecord
from service.connect.data.records import ConnectRecord, FromSource
from service.connect.tasks.errors import ErrorPolicy
from service.connect.tasks.source import INTERVAL_S, CommitBoundary, SourceLoop
from tests.service.connect.tasks.clocks import SteppedClock

pytestmark = pytest.mark.anyio


@dataclass
class Counted:
    """Gives one record a poll, each of which takes a second, until there are `count`."""

    clock: SteppedClock
    count: int
    fault: str = ""
    given: int = 0

    async def start(self) -> None:
        pass

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        self.clock.now_s += 1.0
        if self.fault:
            raise RetriableFault(self.fault)
        if self.given == self.count:
            return []
        self.given += 1
        return [
            ConnectRecord("t", None, None, self.given, origin=FromSource({}, {"n": self.given}))
        ]

    async def committed(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class Plain:
    async def to_log(self, records: Sequence[ConnectRecord]) -> Sequence[LogRecord]:
        return [LogRecord("t", None, None, b"%d" % record.value) for record in records]


@dataclass
class Noted:
    commits: list[int] = field(default_factory=list)
    waiting: str = ""

    async def commit(
        self,
        *,
        records: Sequence[LogRecord] = (),
        positions: Mapping[bytes, bytes | None] | None = None,
        group: object = None,
        read: int = 0,
        errors: int = 0,
    ) -> None:
        self.commits.append(len(records))


class Healing(SteppedClock):
    """A clock at whose end the source can be read again."""

    source: Counted
    noted: Noted

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if self.now_s > 10_000:
            assert self.noted.waiting == "gone"
            self.source.fault = ""


async def commits_of(config: dict[str, str], seconds: float, fault: str = "") -> list[int]:
    clock, noted = SteppedClock(), Noted()
    source = Counted(clock, 1000, fault)
    policy = ErrorPolicy("c", 0, config, clock.world)
    loop = SourceLoop(source, Plain(), policy, noted, clock.world, CommitBoundary.of(config))
    await loop.run(clock.now_s + seconds)
    assert sum(noted.commits) == source.given
    return noted.commits


async def test_with_an_interval_a_commit_has_what_came_within_it() -> None:
    config = {
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "10000",
    }
    assert await commits_of(config, 35) == [10, 10, 10, 5]


async def test_an_interval_that_is_not_given_is_that_of_kafka() -> None:
    assert CommitBoundary.of({"transaction.boundary": "interval"}).interval_s == INTERVAL_S == 60


async def test_with_polls_each_is_a_commit() -> None:
    assert await commits_of({"transaction.boundary": "poll"}, 5) == [1] * 5


async def test_a_poll_is_repeated_for_the_time_for_retries_and_then_given_up() -> None:
    with pytest.raises(TaskFault, match=r"gone \(for errors.retry.timeout, 30 s\)"):
        await commits_of({"errors.retry.timeout": "30000"}, 1000, "gone")


@pytest.mark.parametrize(
    "config", [{}, {"errors.retry.timeout": "30000", "errors.tolerance": "all"}], ids=str
)
async def test_a_poll_is_repeated_for_ever(config: dict[str, str]) -> None:
    healing = Healing()
    noted, source = Noted(), Counted(healing, 3, "gone")
    healing.source, healing.noted = source, noted
    policy = ErrorPolicy("c", 0, config, healing.world)
    loop = SourceLoop(source, Plain(), policy, noted, healing.world)
    await loop.run(11_100)
    assert source.given == sum(noted.commits) == 3
    assert noted.waiting == ""
