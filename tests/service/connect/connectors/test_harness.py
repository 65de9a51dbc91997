"""The harness dies where it says, and then the log holds what a real one would."""

from collections.abc import Sequence

import pytest

from service.connect.connectors.api import (
    Plugin,
    PluginKind,
    TaskContext,
    TopicPartition,
    same_tasks,
    single_task,
)
from service.connect.data.records import ConnectRecord, FromSource
from tests.service.connect.connectors.harness import (
    SinkCrash,
    SinkTrial,
    SourceCrash,
    SourceTrial,
    environment,
)

pytestmark = pytest.mark.anyio


class Counting:
    def __init__(self, context: TaskContext) -> None:
        self.context = context
        self.next = 0

    async def start(self) -> None:
        [position] = await self.context.offsets.read([{"of": "numbers"}])
        self.next = 0 if position is None else position["next"]

    async def poll(self, wait_s: float, records_max: int) -> Sequence[ConnectRecord]:
        numbers = range(self.next, self.next + 3)
        self.next += 3
        return [
            ConnectRecord("t", None, None, n, origin=FromSource({"of": "numbers"}, {"next": n + 1}))
            for n in numbers
        ]

    async def committed(self) -> None: ...

    async def stop(self) -> None: ...


class Keeping:
    def __init__(self, kept: list[int]) -> None:
        self.kept = kept

    async def start(self) -> None: ...

    async def positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    async def put(self, records: Sequence[ConnectRecord]) -> None:
        self.kept += [record.value for record in records]

    async def flush(self) -> None: ...

    async def stop(self) -> None: ...


@pytest.mark.parametrize("crash", SourceCrash)
async def test_a_source_goes_on_from_what_was_committed(crash: SourceCrash) -> None:
    plugin = Plugin(
        kind=PluginKind.SOURCE,
        class_name="Counting",
        version="1",
        about="",
        keys=(),
        tasks=single_task,
        make=Counting,
        promises="",
    )
    trial = SourceTrial(plugin, {}, environment())

    await trial.run(lambda: False, crash=crash, crash_at=2)
    assert trial.values == list(range(3 if crash is SourceCrash.BEFORE_COMMIT else 6))

    await trial.run(lambda: len(trial.records) >= 9)
    assert trial.values == list(range(9))


@pytest.mark.parametrize(
    ("crash", "kept"),
    [
        (SinkCrash.AFTER_POSITIONS, [0, 1, 2, 3, 4]),
        (SinkCrash.AFTER_PUT, [0, 1, 0, 1, 2, 3, 4]),
        (SinkCrash.AFTER_FLUSH, [0, 1, 0, 1, 2, 3, 4]),
    ],
)
async def test_a_sink_gets_again_what_was_not_committed(crash: SinkCrash, kept: list[int]) -> None:
    target: list[int] = []
    plugin = Plugin(
        kind=PluginKind.SINK,
        class_name="Keeping",
        version="1",
        about="",
        keys=(),
        tasks=same_tasks,
        make=lambda _: Keeping(target),
        promises="",
    )
    trial = SinkTrial(plugin, {}, environment())
    trial.give("t", 0, *range(5))

    await trial.run(crash=crash, records_max=2)
    await trial.run(records_max=2)

    assert target == kept
    assert trial.committed == {TopicPartition("t", 0): 5}
