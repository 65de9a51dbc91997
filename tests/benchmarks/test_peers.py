"""Our own peer on a real gateway: its counts equal the records in the log."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.floors import FLOORS, Floor
from benchmarks.peers.peer import SYNCED, NotHere, values_of
from benchmarks.peers.riacho import Riacho, RiachoArrow, RiachoJson, chunks
from benchmarks.peers.riacho_delays import Chunks
from benchmarks.side_by_side.fan_out import reads_per_slice

VALUES = values_of(100, 40)


@pytest.fixture(scope="module", params=[RiachoJson, RiachoArrow])
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Riacho]:
    started: Riacho = request.param()
    started.start(tmp_path_factory.mktemp("data"))
    yield started
    started.stop()


def ends(peer: Riacho, topic: str) -> list[int]:
    url = f"http://127.0.0.1:{peer.port}/v1/topics/{topic}/partitions"
    with urllib.request.urlopen(url) as answer:
        return [partition["high_watermark"] for partition in json.load(answer)["partitions"]]


def test_the_peers_counts_equal_the_records_written_and_read(peer: Riacho) -> None:
    for topic, partitions in (("one", 1), ("several", 3)):
        peer.make(topic, partitions)

        written = peer.produce(topic, VALUES, batch=30, in_flight=2, seconds=0.3)
        read = peer.fetch(topic, written.records, batch=50)

        assert written.records == sum(ends(peer, topic)) == read.records
        assert min(ends(peer, topic)) > 0
    assert peer.cpu_s() > 0
    assert peer.durability == SYNCED


def test_fetching_more_records_than_were_written_is_an_error(peer: Riacho) -> None:
    peer.make("few")
    written = peer.produce("few", VALUES, batch=10, in_flight=1, seconds=0.05)

    with pytest.raises(RuntimeError, match="records were written"):
        peer.fetch("few", written.records + 1, batch=100)


def test_every_record_after_the_warm_up_has_a_delay(peer: Riacho) -> None:
    peer.make("tailed")

    delays = peer.delays("tailed", VALUES[0], rate=100, seconds=0.5)

    assert len(delays) == 45
    assert min(delays) > 0
    assert ends(peer, "tailed") == [50]


def test_making_an_existing_topic_is_an_error(peer: Riacho) -> None:
    peer.make("twice")

    with pytest.raises(RuntimeError, match="409"):
        peer.make("twice")


@pytest.mark.parametrize("kind", FLOORS, ids=lambda kind: kind.__name__)
def test_floors_only_write_and_leave_no_files(kind: type[Floor], tmp_path: Path) -> None:
    floor = kind()
    floor.start(tmp_path)
    floor.make("t")

    # A disk that is busy may take longer than that for the first batch.
    rates = (
        floor.produce("t", VALUES, batch=10, in_flight=2, seconds=s) for s in (0.05, 1, 10, 60)
    )
    rate = next(rate for rate in rates if rate.records)

    assert rate.records % 10 == 0
    assert floor.cpu_s() > 0
    assert list((tmp_path / "t").iterdir()) == []
    with pytest.raises(NotHere):
        floor.fetch("t", 10, 10)


@pytest.mark.parametrize("apart", [False, True])
def test_readers_of_one_gateway_share_its_reads(apart: bool) -> None:
    assert reads_per_slice(readers=5, slices=10, apart=apart) <= 1.2


def test_batches_wrap_around_the_values() -> None:
    assert chunks([b"a", b"b", b"c"], 2) == [[b"a", b"b"], [b"c", b"a"], [b"b", b"c"]]
    assert chunks([b"a", b"b"], 4) == [[b"a", b"b", b"a", b"b"]]


def test_chunks_can_arrive_in_pieces() -> None:
    chunked = Chunks()

    assert chunked.fed(b"3\r\nab") == b""
    assert chunked.fed(b"c\r\n2\r\nde\r\n1") == b"abcde"
    assert chunked.fed(b"\r\nf\r\n") == b"f"
