"""The arithmetic of rounds: figures in tables follow from measurements."""

import pytest

from benchmarks.side_by_side.figures import (
    CPU,
    P50,
    RATE,
    Results,
    Spread,
    Workload,
    number,
    percentile,
    rotated,
    span,
)
from benchmarks.side_by_side.latency import SAME, rates_of, workload_of
from benchmarks.side_by_side.lineup import ARROW_PEER, JSON_PEER
from benchmarks.side_by_side.targets import (
    APART,
    ARROW_CODEC,
    AT_LEAST,
    AT_MOST,
    KAFKA,
    NATS,
    Target,
    of_batches,
    targets_of,
)

PRODUCE = Workload(section="produce", size=100, batch=1000, in_flight=4)


def test_a_spread_has_the_median_the_minimum_and_the_maximum() -> None:
    spread = Spread((3.0, 1.0, 2.0))

    assert (spread.median, spread.least, spread.most) == (2.0, 1.0, 3.0)
    assert spread.document() == {"median": 2.0, "min": 1.0, "max": 3.0, "rounds": [3.0, 1.0, 2.0]}


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    results = Results()
    for round_, (ours, theirs) in enumerate([(100.0, 50.0), (10.0, 1.0), (90.0, 30.0)]):
        results.add(PRODUCE, ARROW_PEER, round_, {RATE: ours})
        results.add(PRODUCE, KAFKA, round_, {RATE: theirs})

    ratio = results.ratio(PRODUCE, ARROW_PEER, KAFKA, RATE)

    # The ratio of the medians would be 90 / 30; a busy round affects both peers or neither.
    assert ratio == Spread((2.0, 10.0, 3.0))
    assert ratio.median == 3.0


def test_a_round_that_one_peer_missed_has_no_ratio() -> None:
    results = Results()
    results.add(PRODUCE, ARROW_PEER, 0, {RATE: 100.0})
    results.add(PRODUCE, ARROW_PEER, 1, {RATE: 100.0})
    results.add(PRODUCE, KAFKA, 1, {RATE: 25.0})

    assert results.ratio(PRODUCE, ARROW_PEER, KAFKA, RATE) == Spread((4.0,))
    assert results.ratio(PRODUCE, ARROW_PEER, NATS, RATE) is None


@pytest.mark.parametrize(("percent", "expected"), [(50, 500), (99, 990), (99.9, 999), (100, 1000)])
def test_percentiles_are_measured_values(percent: float, expected: int) -> None:
    assert percentile(range(1000, 0, -1), percent) == expected
    assert percentile([7.0], percent) == 7.0


def test_each_peer_is_first_in_turn() -> None:
    peers = ["a", "b", "c"]

    orders = [rotated(peers, round_) for round_ in range(4)]

    assert orders == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert rotated([], 1) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.012345, "0.0123"), (9.87, "9.87"), (412.6, "413"), (1_234_567, "1,230,000")],
)
def test_numbers_are_shown_with_three_significant_digits(value: float, expected: str) -> None:
    assert number(value) == expected


def test_a_span_shows_its_minimum_and_maximum() -> None:
    assert span(Spread((2000.0, 1000.0))) == "1,000 to 2,000"


def test_loads_are_fractions_of_the_capacity_of_each_peer() -> None:
    capacities = {JSON_PEER: 1000.0, KAFKA: 4000.0, "slow": 300.0}

    assert rates_of("50 %", capacities) == {JSON_PEER: 500.0, KAFKA: 2000.0, "slow": 150.0}
    # A peer that cannot reach the rate is left out: its latency would mean nothing.
    assert rates_of(SAME, capacities) == {JSON_PEER: 500.0, KAFKA: 500.0}


@pytest.mark.parametrize(
    ("relation", "measured", "verdict"),
    [
        (AT_LEAST, Spread((2.0,)), "met"),
        (AT_LEAST, Spread((1.0, 1.9, 9.0)), "NOT met"),
        (AT_MOST, Spread((2.0,)), "met"),
        (AT_MOST, Spread((1.0, 2.1, 3.0)), "NOT met"),
        (AT_MOST, None, "not measured"),
    ],
)
def test_the_median_decides_on_a_target(
    relation: str, measured: Spread | None, verdict: str
) -> None:
    target = Target("what", "whom", relation, 2.0, measured)

    assert target.verdict == verdict
    assert target.row()[-1] == verdict


def test_every_target_has_a_verdict_also_if_missed_or_not_measured() -> None:
    results = Results()
    _, workload = of_batches("produce")[0]
    results.add(workload, ARROW_PEER, 0, {RATE: 50.0, CPU: 0.003})
    results.add(workload, KAFKA, 0, {RATE: 100.0, CPU: 0.001})
    results.add(workload, ARROW_CODEC, 0, {CPU: 0.002})
    results.add(workload_of("50 %"), JSON_PEER, 0, {P50: 3.0})
    results.add(workload_of("50 %"), NATS, 0, {P50: 2.0})

    targets = targets_of(results, {APART: Spread((1.0,))})

    measured = {(target.what, target.against): target.verdict for target in targets}
    assert measured["Arrow produce 100 B × 1,000", KAFKA] == "NOT met"
    assert measured["CPU per MB, Arrow produce 100 B × 1,000", ARROW_CODEC] == "met"
    assert measured["end to end p50 at 50 % load", NATS] == "met"
    assert measured["store reads per slice, 50 tails", APART] == "met"
    others = [verdict for verdict in measured.values() if verdict == "not measured"]
    assert len(others) == len(measured) - 4
