"""The windows kept for producers, compared with a model that remembers every batch."""

import random
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    ProducerForgotten,
    RiachoError,
)
from storage.head import head as heads
from storage.head import producers
from storage.head.producers import REMEMBERED_MAX, SEQUENCES, Claim, Key, Verdict, Window
from tests.examples import some

PRODUCER, PARTITION, MINUTE = 4012, 3, 7

Told = int | type[RiachoError] | None
"""The offset of a duplicate, why it is refused, or None: append it."""


class Model:
    """A producer that numbers its records without end, and a log that forgets none of them."""

    def __init__(self, first: int = 0) -> None:
        self.epoch = 0
        self.batches: list[tuple[int, int, int]] = []
        """Number of the first record, count and offset of every batch of the epoch."""
        self.end = first
        self.next_offset = 0

    def judge(self, epoch: int, start: int, count: int) -> Told:
        if epoch < self.epoch:
            return InvalidProducerEpoch
        if epoch > self.epoch:
            return None if start == 0 else OutOfOrderSequence
        if start == self.end:
            return None
        remembered = self.batches[-REMEMBERED_MAX:]
        for first, length, offset in remembered:
            if (first, length) == (start, count):
                return offset
        oldest = remembered[0][0] if remembered else self.end
        # A number before the very first record was never sent, unless old batches are forgotten.
        if start + count <= oldest and (start >= 0 or len(remembered) == REMEMBERED_MAX):
            return DuplicateSequence
        return OutOfOrderSequence

    def append(self, epoch: int, start: int, count: int) -> int:
        if epoch > self.epoch:
            self.epoch, self.batches = epoch, []
        offset = self.next_offset
        self.batches.append((start, count, offset))
        self.end = start + count
        self.next_offset += count
        return offset


def claim(epoch: int, start: int, count: int) -> Claim:
    return Claim(PARTITION, PRODUCER, epoch, start % SEQUENCES, count)


def told(verdict: Verdict | None) -> Told:
    return type(verdict) if isinstance(verdict, RiachoError) else verdict


COUNTS = st.integers(1, 5) | st.sampled_from([100_000, 2**20])
STEPS = st.one_of(
    st.tuples(st.just("next"), COUNTS),
    st.tuples(st.just("repeat"), st.integers(1, 8)),
    st.tuples(st.just("other"), st.integers(-12, 12), COUNTS),
    st.tuples(st.just("epoch"), st.integers(-2, 2), st.sampled_from([0, 0, 0, 1, 9]), COUNTS),
)
# Near where sequence numbers wrap to 0, and near half-way there.
FIRSTS = st.sampled_from([0, 0, SEQUENCES - 9, SEQUENCES // 2 - 9, 3 * SEQUENCES - 200_000])


def wanted(model: Model, step: tuple[object, ...]) -> tuple[int, int, int]:
    """Return epoch, first number and count of the batch that the step sends."""
    match step:
        case ("next", int(count)):
            return model.epoch, model.end, count
        case ("repeat", int(back)) if len(model.batches) >= back:
            start, count, _ = model.batches[-back]
            return model.epoch, start, count
        case ("other", int(shift), int(count)):
            return model.epoch, model.end + shift, count
        case ("epoch", int(more), int(start), int(count)):
            if more > 0 or -model.epoch <= more < 0:
                return model.epoch + more, start, count
    return model.epoch, model.end, 1


@some
@given(FIRSTS, st.lists(STEPS, max_size=40))
def test_a_window_judges_batches_like_a_model_that_forgets_nothing(
    first: int, steps: list[tuple[object, ...]]
) -> None:
    model, window = Model(first), None
    for _ in range(REMEMBERED_MAX + 1 if first else 0):  # Reach the first number to test.
        window = window or Window(PRODUCER, PARTITION, 0, MINUTE, first % SEQUENCES, ())
        batch = (0, model.end, 1)
        window = producers.advance(window, claim(*batch), model.append(*batch), MINUTE)

    for step in steps:
        batch = wanted(model, step)
        if window is None and batch[1] == 0:
            expected: Told = None
        elif window is None:
            expected = ProducerForgotten
        else:
            expected = model.judge(*batch)

        verdict = producers.judge(window, claim(*batch))

        assert told(verdict) == expected, (step, batch, window)
        if verdict is None:
            window = producers.advance(window, claim(*batch), model.append(*batch), MINUTE)
            assert len(window.batches) <= 2 * REMEMBERED_MAX


def test_the_first_batch_of_a_producer_has_sequence_0() -> None:
    assert producers.judge(None, claim(0, 0, 3)) is None
    assert producers.judge(None, claim(7, 0, 3)) is None
    refused = producers.judge(None, claim(0, 1, 3))
    assert isinstance(refused, OutOfOrderSequence)
    assert "sequence 1 came where 0 is expected: nothing of it is known" in str(refused)


def test_a_sequence_before_the_first_record_is_not_a_duplicate() -> None:
    # Nothing was sent before the first record, although numbers wrap around.
    window = producers.advance(None, claim(0, 0, 5), 100, MINUTE)

    assert told(producers.judge(window, claim(0, -3, 3))) == OutOfOrderSequence


def test_a_batch_that_overlaps_an_old_one_partly_is_not_a_duplicate() -> None:
    window = None
    for number in range(7):
        window = producers.advance(window, claim(0, 10 * number, 10), 10 * number, MINUTE)

    # The last five are 20 to 70.
    assert told(producers.judge(window, claim(0, 10, 10))) == DuplicateSequence
    assert told(producers.judge(window, claim(0, 15, 10))) == OutOfOrderSequence
    assert told(producers.judge(window, claim(0, 20, 10))) == 20
    assert told(producers.judge(window, claim(0, 20, 20))) == OutOfOrderSequence
    assert told(producers.judge(window, claim(0, 60, 20))) == OutOfOrderSequence
    assert told(producers.judge(window, claim(0, 10, 200))) == OutOfOrderSequence


def test_a_newer_epoch_forgets_what_the_older_one_sent() -> None:
    window = producers.advance(None, claim(0, 0, 5), 100, MINUTE)
    window = producers.advance(window, claim(1, 0, 5), 200, MINUTE)

    assert producers.judge(window, claim(1, 0, 5)) == 200
    assert told(producers.judge(window, claim(0, 0, 5))) == InvalidProducerEpoch
    assert told(producers.judge(window, claim(0, 5, 5))) == InvalidProducerEpoch


class Log:
    """Runs appended to a head as by a commit: judged first, without refused batches."""

    def __init__(self, partitions: int) -> None:
        self.windows: dict[Key, Window] = {}
        self.records: list[list[Claim]] = [[] for _ in range(partitions)]

    def judged(
        self, runs: list[list[Claim]]
    ) -> tuple[list[dict[int, Verdict]], Mapping[Key, Window]]:
        ends = [len(records) for records in self.records]
        bases, claims = [], []
        for run in runs:
            base = dict(enumerate(ends))
            placed = []
            for each in run:
                placed.append(each._replace(row=ends[each.partition] - base[each.partition]))
                ends[each.partition] += each.record_count
            bases.append(base)
            claims.append(placed)
        return producers.settle(self.windows, claims, bases, MINUTE)

    def commit(self, runs: list[list[Claim]]) -> None:
        verdicts, changed = self.judged(runs)
        assert not any(verdicts)
        for key, window in changed.items():
            self.windows.pop(key, None)
            self.windows[key] = window
        for each in (each for run in runs for each in run):
            self.records[each.partition] += [each] * each.record_count


@pytest.mark.parametrize("seed", range(20))
def test_runs_settled_together_are_judged_in_order(seed: int) -> None:
    chance = random.Random(seed)
    log = Log(partitions=3)
    sent: dict[Key, list[Claim]] = {}

    for _ in range(30):
        runs = []
        for _ in range(chance.randint(1, 4)):
            run = []
            for _ in range(chance.randint(0, 5)):
                key = chance.randint(1, 4), chance.randrange(3)
                own = sent.setdefault(key, [])
                number = sum(each.record_count for each in own)
                if own and chance.random() < 0.3:
                    run.append(chance.choice(own[-REMEMBERED_MAX:]))
                    continue
                new = Claim(key[1], key[0], 0, number, chance.randint(1, 9))
                own.append(new)
                run.append(new)
            runs.append(run)
        verdicts, _ = log.judged(runs)
        kept = [
            [each for number, each in enumerate(run) if number not in rejected]
            for run, rejected in zip(runs, verdicts, strict=True)
        ]
        log.commit(kept)

    for key, own in sent.items():
        stored = [each for each in log.records[key[1]] if each.producer_id == key[0]]
        assert stored == [each for each in own for _ in range(each.record_count)]
        for each in own[-REMEMBERED_MAX:]:
            assert producers.judge(log.windows[key], each) == log.records[key[1]].index(each)


def test_changed_windows_are_ordered_by_last_use() -> None:
    first, second = Claim(0, 1, 0, 0, 2), Claim(0, 2, 0, 0, 3)
    again = Claim(0, 1, 0, 2, 4)

    verdicts, changed = producers.settle(
        {}, [[first, second._replace(row=2)], [again]], [{0: 10}, {0: 15}], MINUTE
    )

    assert verdicts == [{}, {}]
    assert list(changed) == [second.key, first.key]
    assert changed[first.key].batches == (2, 10, 4, 15)
    assert changed[second.key].batches == (3, 12)
    head = heads.with_windows(heads.create(bytes(16), 0, 1, ["a"]), changed)
    third = {(3, 0): Window(3, 0, 0, MINUTE, 0, ()), second.key: changed[second.key]}
    assert [w.producer_id for w in heads.with_windows(head, third).producers] == [1, 3, 2]


def test_a_window_expires_when_unused_for_its_lifetime() -> None:
    windows = [Window(n, 0, 0, minute, 0, ()) for n, minute in enumerate([9, 10, 11, 12])]

    assert list(producers.unexpired(windows, 12, 120_000)) == [(1, 0), (2, 0), (3, 0)]
    # A window never expires early, so a part of a minute counts as a whole one.
    assert list(producers.unexpired(windows, 12, 60_001)) == [(1, 0), (2, 0), (3, 0)]
    assert list(producers.unexpired(windows, 12, 60_000)) == [(2, 0), (3, 0)]


def test_the_estimated_bytes_of_windows_are_within_a_factor_of_two_of_the_encoded_ones() -> None:
    chance = random.Random(1)
    head = heads.create(bytes(16), 0, 64, ["a"])
    windows = tuple(
        Window(
            chance.randint(1, 10**6),
            chance.randrange(64),
            chance.randint(0, 100),
            28_000_000,
            chance.randrange(10**6),
            tuple(chance.choice([(5, 10**5), (500, 10**9)]) * chance.randint(1, 5)),
        )
        for _ in range(100)
    )
    full = heads.with_windows(head, {window.key: window for window in windows})

    taken = len(heads.encode(full)) - len(heads.encode(head))

    assert taken / 2 < producers.inline_bytes(full.producers) < taken * 2


# Boundaries


def window_of(batches: int, epoch: int = 0) -> Window:
    """Return the window of a producer that has sent `batches` batches of one record each."""
    window = None
    for number in range(batches):
        window = producers.advance(window, claim(epoch, number, 1), number, MINUTE)
    assert window is not None
    return window


def test_a_sequence_up_to_half_the_number_space_behind_is_an_old_duplicate() -> None:
    window = window_of(REMEMBERED_MAX)
    half = REMEMBERED_MAX - SEQUENCES // 2

    assert told(producers.judge(window, claim(0, half, 1))) is DuplicateSequence
    assert told(producers.judge(window, claim(0, half + SEQUENCES // 8, 1))) is DuplicateSequence
    assert told(producers.judge(window, claim(0, half - 1, 1))) is OutOfOrderSequence


@pytest.mark.parametrize("batches", range(1, REMEMBERED_MAX))
def test_a_sequence_before_zero_is_out_of_order_while_every_batch_is_remembered(
    batches: int,
) -> None:
    assert told(producers.judge(window_of(batches), claim(0, -3, 1))) is OutOfOrderSequence


def test_a_new_epoch_begins_with_an_empty_window() -> None:
    window = window_of(3)

    with pytest.raises(OutOfOrderSequence, match="came where 0 is expected: the epoch is new"):
        raise_given(producers.judge(window, claim(1, 3, 1)))
    advanced = producers.advance(window, claim(1, 0, 1), 17, MINUTE)

    assert advanced.batches == (1, 17)
    assert told(producers.judge(advanced, claim(1, -1, 1))) is OutOfOrderSequence


def raise_given(verdict: Verdict | None) -> None:
    assert isinstance(verdict, RiachoError)
    raise verdict


@pytest.mark.parametrize("batches", [1, REMEMBERED_MAX])
def test_the_estimated_bytes_of_a_window_are_close_to_its_encoded_size(batches: int) -> None:
    numbers = tuple(number for n in range(batches) for number in (100, 10**6 + n))
    window = Window(10**6, PARTITION, 0, 29_000_000, 10**6, numbers)
    encoded_bytes = len(msgspec.msgpack.encode(window))

    assert abs(producers.inline_bytes([window] * 3) - 3 * encoded_bytes) < encoded_bytes
