"""Tables are made from the same lines as plots."""

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from benchmarks import tables
from tests.benchmarks.test_plots import beside, spread


def line(peer: str, batch: int, value: float, **more: Any) -> dict[str, Any]:
    return beside("produce", peer, batch=batch, measures={"records_per_s": spread(value)}, **more)


def test_a_table_has_a_row_for_each_peer_and_a_column_for_each_workload() -> None:
    lines = [
        line("Riacho, JSON", 1, 900),
        line("Riacho, JSON", 1000, 440_000),
        line("Kafka", 1, 1, durability="page cache"),
        line("Kafka", 1, 55_000, durability="page cache"),
    ]

    produce, *_ = tables.tables(lines)

    assert produce == [
        "| records/s | 100 B × 1 | 100 B × 1,000 |",
        "|---|---|---|",
        "| Riacho, JSON | **900** (810 to 1.08 k) | **440 k** (396 k to 528 k) |",
        "| Kafka † | **55.0 k** (49.5 k to 66.0 k) |  |",
    ]


def test_tables_of_delays_and_targets_are_printed() -> None:
    measured = {"p50_ms": spread(0.5), "p99_ms": spread(12.3)}
    target = {"section": "targets", "what": "x", "against": "y", "wanted": "≥ 5"}
    lines = [
        beside("latency", "NATS JetStream", load="50 %", measures=measured),
        beside("latency", "NATS JetStream", load="same", measures=measured),
        {**target, "verdict": "not measured"},
        {**target, "what": "z", "verdict": "met", **spread(6.25)},
    ]

    *_, delays, targets = tables.tables(lines)

    assert delays[0] == "| p50 / p99 / p99.9, ms | 50 % of its own | half of our capacity |"
    assert delays[2] == "| NATS JetStream | 0.500 / 12.3 | 0.500 / 12.3 |"
    assert targets[2:] == [
        "| x | y | ≥ 5 | not measured |  | not measured |",
        "| z | y | ≥ 5 | 6.25 | 5.62 to 7.50 | met |",
    ]
