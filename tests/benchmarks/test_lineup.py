"""Peers take turns: one that fails is reported and stopped, and the others continue."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers.peer import SYNCED, Peer, Rate
from benchmarks.side_by_side import lineup
from benchmarks.side_by_side.__main__ import main
from benchmarks.side_by_side.figures import RATE, Workload
from benchmarks.side_by_side.lineup import FLOORS, OURS, Entry, Stand, chosen
from benchmarks.side_by_side.run import Run
from benchmarks.side_by_side.throughput import FetchTurn, rounds_of_produce

WORKLOAD = Workload(section="produce", size=10, batch=5, in_flight=1)


class Exact:
    """A peer that claims to write 100 records a second, and logs its calls."""

    durability = SYNCED

    def __init__(self, name: str, log: list[str], fails_in: str = "") -> None:
        self.name, self._log, self._fails_in = name, log, fails_in
        self.fetched: list[int] = []

    def about(self) -> str:
        return "exact"

    def start(self, folder: Path) -> None:
        self._log.append(f"{self.name} starts")
        if self._fails_in == "start":
            raise OSError("no room")

    def stop(self) -> None:
        self._log.append(f"{self.name} stops")

    def cpu_s(self) -> float:
        return 0.0

    def make(self, topic: str, partitions: int = 1) -> None:
        pass

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        self._log.append(f"{self.name} {topic}")
        if topic == self._fails_in:
            raise RuntimeError("out of order")
        return Rate(int(100 * seconds), seconds)

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        self.fetched.append(records)
        return Rate(records, records / 1000)

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        return []


class ExactEntry(Entry):
    """An entry whose peer exists already."""

    def make(self) -> Peer:
        peer: Peer = self.options["peer"]
        return peer


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lineup, "FOLDER", tmp_path / "run")
    return tmp_path / "run"


def test_peers_take_turns_and_a_failed_one_gets_no_more(folder: Path) -> None:
    log: list[str] = []
    peers = [
        Exact("a", log),
        Exact("b", log, fails_in="produce-10-5-1-1"),
        Exact("c", log, fails_in="start"),
    ]
    standing = Stand({})
    for peer in peers:
        standing.start(ExactEntry(peer.name, "", "", {"peer": peer}))
    run = Run(3, 2.0, ())

    rounds_of_produce(run, standing, WORKLOAD)
    standing.stop()

    assert log == [
        "a starts", "b starts", "c starts", "c stops",
        "a produce-10-5-1-0", "b produce-10-5-1-0",
        "b produce-10-5-1-1", "b stops", "a produce-10-5-1-1",
        "a produce-10-5-1-2", "a stops",
    ]  # fmt: skip
    assert standing.absent == {"b": "RuntimeError: out of order", "c": "OSError: no room"}
    assert list(folder.iterdir()) == []
    written, broken = (run.results.spread(WORKLOAD, name, RATE) for name in "ab")
    assert written is not None
    assert written.rounds == (100.0, 100.0, 100.0)
    assert broken is not None
    assert broken.rounds == (100.0,)


def test_a_fetch_turn_reads_as_many_records_as_fit_into_its_time() -> None:
    large, small = Exact("large", []), Exact("small", [])
    workload = Workload(section="fetch", size=10, batch=100)

    measures = FetchTurn(workload, "t", filled=1_000_000, seconds=2.0).take(large)
    FetchTurn(workload, "t", filled=800, seconds=2.0).take(small)

    assert large.fetched == [100, 800, 2000]
    assert small.fetched == [100, 800, 800, 800]
    assert measures[RATE] == 1000.0


def test_our_own_peers_are_always_chosen() -> None:
    assert chosen(["floors"]) == (*OURS, *FLOORS)
    assert {"kafka", "nats"} <= {entry.key for entry in chosen([])}
    with pytest.raises(ValueError, match="nobody"):
        chosen(["nobody"])


def test_a_client_that_is_not_installed_is_reported_by_name() -> None:
    standing = Stand({})

    standing.start(Entry("missing", "no_such_module", "Missing"))

    assert standing.peers == []
    assert "no_such_module" in standing.absent["missing"]


def test_a_section_prints_a_table_and_writes_json_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.side_by_side.throughput.PARTITIONS", (1, 2))
    lines = tmp_path / "lines.jsonl"
    options = ["--rounds", "1", "--seconds", "0.1", "--peers", "memcpy", "--json", str(lines)]

    assert main(["partitions", *options]) == 0

    printed = capsys.readouterr().out
    assert "to 2 partitions" in printed
    assert "Arrow / it" in printed
    documents = [json.loads(line) for line in lines.read_text().splitlines()]
    measured = [(line["peer"], line["partitions"]) for line in documents]
    ours = ("Riacho, JSON", "Riacho, Arrow")
    assert measured == [(name, partitions) for partitions in (1, 2) for name in ours]
    assert all(line["measures"]["records_per_s"]["median"] > 0 for line in documents)


def test_an_unknown_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["profit"])

    assert "no section is called profit" in capsys.readouterr().err


def test_every_peer_is_stopped_even_if_stopping_is_interrupted(folder: Path) -> None:
    log: list[str] = []

    class Interrupted(Exact):
        def stop(self) -> None:
            super().stop()
            if log.count(f"{self.name} stops") == 1:
                raise KeyboardInterrupt

    standing = Stand({})
    for peer in (Exact("a", log), Interrupted("b", log)):
        standing.start(ExactEntry(peer.name, "", "", {"peer": peer}))

    with pytest.raises(KeyboardInterrupt):
        standing.stop()

    assert log[2:] == ["b stops", "b stops", "a stops"]
    assert list(folder.iterdir()) == []
