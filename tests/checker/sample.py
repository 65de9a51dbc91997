"""Correct histories of any size, as of a service that keeps its promises.

All clients take turns on one clock. Unknown outcomes go both ways, calls fail and are retried,
transactions abort, members return to the committed offset, keys are removed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tests.checker import idempotent_rules as answers
from tests.checker.door_rules import ReadContent, SentContent
from tests.checker.group_rules import Assigned, Committing, Delivered, Read, Seen
from tests.checker.history import History
from tests.checker.idempotent_rules import Line, Sent
from tests.checker.keyed_rules import Look, Record, Written
from tests.checker.log_rules import Fetched, Produced
from tests.checker.transaction_rules import (
    ABORTED,
    COMMITTED,
    FENCED,
    UNKNOWN,
    Attempt,
    Ending,
    Instance,
    Moment,
    Place,
    Shown,
)

PARTITIONS = 4
CLIENTS = 5
KEYS = 40
COPIES = "copies"


def sample(operations: int, seed: int = 0) -> History:
    """Return a history of at least about `operations` operations."""
    made = _Sample(random.Random(seed))
    turns = made.turns()
    # Some turns are more than one operation.
    for number in range(operations * 3 // 4):
        turns[number % len(turns)]()
    return made.finish()


@dataclass
class _Sample:
    chance: random.Random
    history: History = field(default_factory=History)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.history.group.session_s = 6.0
        self.history.transactions.copies_to = COPIES
        self.history.keyed.tombstone_s = 1e9
        self._numbers = count()
        self._logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self._positions: dict[tuple[int, int], int] = {}
        self._sequences: dict[tuple[int, int], int] = {}
        self._generation = 0
        self._owners: dict[int, tuple[str, float]] = {}
        self._polled: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._places: dict[Place, list[str]] = {(COPIES, n): [] for n in range(2)}
        self._shown: dict[Place, int] = {}
        self._copied: dict[int, int] = {}
        self._epochs = count()
        self._keyed: list[Record] = []
        self._announce()

    def turns(self) -> list[Callable[[], None]]:
        return [
            self._produce,
            self._fetch,
            self._send,
            self._poll,
            self._produce,
            self._look,
            self._transact,
            self._read,
            self._write_key,
            self._fetch_keys,
        ]

    def finish(self) -> History:
        for _ in range(4 * PARTITIONS):
            self._poll()
        while any(self._polled.get(p, 0) < len(log) for p, log in enumerate(self._logs)):
            self._poll()
        self._look()
        history = self.history
        for partition, (name, began_s) in self._owners.items():
            history.group.reads.append(Read(name, partition, began_s, self._tick(), self.now_s))
        history.group.is_drained = history.transactions.is_drained = True
        history.final = {p: list(enumerate(log)) for p, log in enumerate(self._logs)}
        history.transactions.final = {p: list(enumerate(log)) for p, log in self._places.items()}
        for source, end in self._copied.items():
            history.transactions.source[source] = [f"{source}:{n}" for n in range(end)]
        last = {record.key: record for record in self._keyed}
        history.keyed.final = {0: sorted(last.values())}
        return history

    def _tick(self) -> float:
        self.now_s += 0.01
        return self.now_s

    def _append(self, partition: int, values: tuple[str, ...]) -> int:
        self._logs[partition] += values
        return len(self._logs[partition]) - len(values)

    def _produce(self) -> None:
        client, partition = self.chance.randrange(CLIENTS), self.chance.randrange(PARTITIONS)
        values = tuple(f"v{next(self._numbers)}" for _ in range(self.chance.randint(1, 3)))
        began_s, fate = self._tick(), self.chance.random()
        happens = fate < 0.95
        base = self._append(partition, values) if happens else None
        is_known = fate < 0.9 or fate > 0.98
        ended_s, told = self._tick(), base if is_known else None
        self.history.produced.append(
            Produced(client, partition, values, began_s, ended_s, told, not is_known)
        )

    def _fetch(self) -> None:
        client, partition = self.chance.randrange(CLIENTS), self.chance.randrange(PARTITIONS)
        offset = self._positions.get((client, partition), 0)
        log, began_s = self._logs[partition], self._tick()
        values = tuple(enumerate(log[offset : offset + 50], offset))
        end = offset + len(values)
        self._positions[client, partition] = end
        doors = self.history.doors
        for place, value in values[:5]:
            doors.sent.append(SentContent(value, f"of {value}"))
            for door in ("http", "kafka"):
                doors.read.append(ReadContent(door, partition, place, value, f"of {value}"))
        self.history.fetched.append(
            Fetched(client, partition, offset, began_s, values, end, len(log), False, self._tick())
        )

    def _send(self) -> None:
        producer, partition = self.chance.randrange(CLIENTS), self.chance.randrange(PARTITIONS)
        line, sequence = Line(producer, partition, 0), self._sequences.get((producer, partition), 0)
        values = tuple(f"n{next(self._numbers)}" for _ in range(self.chance.randint(1, 3)))
        self._sequences[producer, partition] = sequence + len(values)
        base, sent = self._append(partition, values), self.history.idempotent.sent
        first_s = self._tick()
        if self.chance.random() < 0.2:
            sent.append(Sent(line, sequence, values, first_s, self._tick(), answers.UNKNOWN))
        began_s = self._tick()
        sent.append(Sent(line, sequence, values, began_s, self._tick(), answers.ACKED, base))
        client = 1_000_000 + len(sent)
        self.history.produced.append(
            Produced(client, partition, values, first_s, self.now_s, base, False)
        )

    def _announce(self) -> None:
        """Begin a generation: partitions change owners, and each new owner continues.

        Records that were read but not committed are read again.
        """
        self._generation += 1
        group = self.history.group
        for partition, (name, began_s) in self._owners.items():
            group.reads.append(Read(name, partition, began_s, self._tick(), self.now_s))
        names = ["m", "n"] if self._generation % 2 else ["n", "m"]
        self._polled = dict(self._committed)
        for number, name in enumerate(names):
            owned = tuple(p for p in range(PARTITIONS) if p % 2 == number)
            group.told.append(Assigned(name, self._generation, owned, self._tick(), self._tick()))
            self._owners |= dict.fromkeys(owned, (name, self.now_s))

    def _poll(self) -> None:
        if self.chance.random() < 0.01:
            self._announce()
        partition, generation = self.chance.randrange(PARTITIONS), self._generation
        group, (name, _) = self.history.group, self._owners[partition]
        start, log = self._polled.get(partition, 0), self._logs[partition]
        offsets = range(start, min(len(log), start + 100))
        if not offsets:
            return
        began_s = self._tick()
        group.delivered.append(
            Delivered(name, generation, partition, offsets, began_s, self._tick())
        )
        self._polled[partition] = offsets.stop
        is_known, began_s = self.chance.random() < 0.9, self._tick()
        if is_known or self.chance.random() < 0.5:
            self._committed[partition] = offsets.stop
        group.commits.append(
            Committing(name, generation, partition, offsets.stop, began_s, is_known, self._tick())
        )

    def _look(self) -> None:
        began_s = self._tick()
        self.history.group.seen.append(Seen(self._tick(), dict(self._committed), began_s))

    def _transact(self) -> None:
        history, source = self.history.transactions, self.chance.randrange(3)
        if not history.instances:
            began_s = self._tick()
            history.instances.append(Instance("c", 1, next(self._epochs), self._tick(), began_s))
        epoch = next(self._epochs)
        name, start = f"c.1.{epoch}", self._copied.get(source, 0)
        places = {
            place: (f"{source}:{start + number}@{name}",)
            for number, place in enumerate(self._places)
        }
        history.attempts.append(Attempt(name, places, {source: start + len(places)}))
        began_s, fate = self._tick(), self.chance.random()
        following = (1, epoch + 1)
        if fate < 0.1:
            ended_s = self._tick()
            history.endings.append(Ending(name, ABORTED, began_s, ended_s, ABORTED, following))
            return
        bases = {place: len(self._places[place]) for place in places}
        for place, values in places.items():
            self._places[place] += values
        self._copied[source] = start + len(places)
        history.moments.append(
            Moment(self._tick(), dict(self._copied), sum(map(len, self._places.values())))
        )
        answer = UNKNOWN if fate < 0.2 else COMMITTED
        told = (following, bases) if answer == COMMITTED else (None, None)
        history.endings.append(Ending(name, COMMITTED, began_s, self._tick(), answer, *told))
        if epoch > 20 and fate > 0.9:
            old, began_s = f"c.1.{epoch - 15}", self._tick()
            history.endings.append(Ending(old, ABORTED, began_s, self._tick(), FENCED))

    def _read(self) -> None:
        place = COPIES, self.chance.randrange(2)
        start, log, began_s = self._shown.get(place, 0), self._places[place], self._tick()
        values = tuple(enumerate(log[start : start + 20], start))
        self._shown[place] = start + len(values)
        is_end = self._shown[place] == len(log)
        self.history.transactions.shown.append(
            Shown(place, began_s, self._tick(), values, len(log), is_end)
        )

    def _write_key(self) -> None:
        key, fate, began_s = f"k{self.chance.randrange(KEYS)}", self.chance.random(), self._tick()
        value = None if fate < 0.1 else f"w{next(self._numbers)}"
        record = Record(len(self._keyed), key, value)
        is_known = fate < 0.9
        if is_known or self.chance.random() < 0.5:
            self._keyed.append(record)
        offset = record.offset if is_known else None
        self.history.keyed.written.append(
            Written(0, key, value, began_s, self._tick(), offset, not is_known)
        )

    def _fetch_keys(self) -> None:
        """Read the latest records of the compacted topic: at least the last of each key."""
        end, began_s = len(self._keyed), self._tick()
        asked = max(0, end - self.chance.randint(1, 40))
        last = {record.key: record for record in self._keyed[asked:]}
        records = self._keyed[asked:] if self.chance.random() < 0.5 else sorted(last.values())
        self.history.keyed.looks.append(Look(0, asked, began_s, tuple(records), end))
