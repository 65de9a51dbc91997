"""Plots are drawn from lines of JSON, and equal lines give equal plots."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks import plots


def spread(value: float) -> dict[str, Any]:
    return {"median": value, "min": value * 0.9, "max": value * 1.2, "rounds": [value]}


def beside(section: str, peer: str, **more: Any) -> dict[str, Any]:
    line = {"benchmark": "side_by_side", "section": section, "peer": peer, "size": 100, "load": ""}
    return line | {"durability": "synced", "batch": 1} | more


LINES = [
    *(
        beside("produce", peer, size=size, batch=batch, measures={"records_per_s": spread(batch)})
        for peer in ("Riacho, JSON", "Kafka", "floor: memcpy", "somebody new")
        for size in (100, 1024)
        for batch in (1, 1000)
    ),
    beside("fetch", "Kafka", batch=100, measures={"records_per_s": spread(7)}),
    *(
        beside(
            "latency", "NATS JetStream", load=load, rate=rate,
            measures={"p50_ms": spread(rate), "p99_ms": spread(rate)},
        )
        for load, rate in (("10 %", 10.0), ("90 %", 90.0), ("same", 55.0))
    ),
    {"benchmark": "side_by_side", "section": "targets", "what": "x", "verdict": "met"},
    *(
        {"benchmark": "growth", "what": "append", "size": size, "ms": 1.5, "requests": 2}
        for size in (100, 10_000)
    ),
    {"benchmark": "growth", "what": "lookup", "size": 100, "ms": 0.2, "requests": 0},
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def test_every_measured_section_gets_a_plot(file: Path, tmp_path: Path) -> None:
    assert plots.main([str(file), "--into", str(tmp_path / "plots")]) == 0

    drawn = {path.name: path.read_text() for path in (tmp_path / "plots").iterdir()}
    assert set(drawn) == {"produce.svg", "fetch.svg", "latency.svg", "cost.svg"}
    # Labels are text elements, which can be searched and read by screen readers.
    assert ">Riacho, JSON (synced)</text>" in drawn["produce.svg"]
    assert ">records of 1,024 B</text>" in drawn["produce.svg"]
    assert ">records/s</text>" in drawn["fetch.svg"]
    assert ">NATS JetStream (synced)</text>" in drawn["latency.svg"]
    assert ">time, ms</text>" in drawn["cost.svg"]
    assert ">lookup</text>" in drawn["cost.svg"]


def test_sections_without_measurements_are_not_drawn(tmp_path: Path) -> None:
    assert plots.draw_all(plots.read([]), tmp_path) == []


def test_the_same_lines_give_the_same_bytes(file: Path, tmp_path: Path) -> None:
    once, again = tmp_path / "once", tmp_path / "again"

    plots.draw_all(plots.read([file]), once)
    plots.draw_all(plots.read([file]), again)

    for path in once.iterdir():
        assert path.read_bytes() == (again / path.name).read_bytes()
        assert b"<dc:date>" not in path.read_bytes()


def test_a_later_figure_replaces_an_earlier_one() -> None:
    earlier = beside("produce", "Kafka", measures={"records_per_s": spread(1)})
    later = beside("produce", "Kafka", measures={"records_per_s": spread(2)})

    points = plots._points([earlier, later], "batch", "records_per_s")

    assert points == [(1, 2, 1.8, 2.4)]
