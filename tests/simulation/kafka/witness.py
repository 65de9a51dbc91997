"""Writes down what records are, as clients of all doors sent and read them."""

from collections.abc import Iterable

from tests.checker.door_rules import DoorHistory, ReadContent, SentContent
from tests.simulation.kafka.contents import Found


class Witness:
    def __init__(self) -> None:
        self.history = DoorHistory()
        self._seen: set[tuple[str, int, int, str, str]] = set()

    def sends(self, value: str, content: str) -> None:
        self.history.sent.append(SentContent(value, content))

    def reads(self, door: str, partition: int, found: Iterable[Found]) -> None:
        """Note each record once by each door, and again if it differs."""
        for each in found:
            key = door, partition, each.offset, each.name, each.line
            if key not in self._seen:
                self._seen.add(key)
                self.history.read.append(ReadContent(*key))

    def complains(self, what: str) -> None:
        self.history.errors.append(what)
