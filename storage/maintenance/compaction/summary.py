"""How a compaction goes, and how it went: for people and for the commands that tell them."""

from dataclasses import dataclass, field


class Progress:
    """Hears how it goes; to be overridden by who wants to know."""

    def planned(self, partitions: int, size_bytes: int) -> None:
        """So much more is going to be done."""

    def done(self, records: int, size_bytes: int) -> None:
        """So much of it was read and written; it does not count yet."""

    def swapped(self, partitions: int) -> None:
        """So many partitions more are finished, one way or the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    topic: str
    partition: int
    kind: str
    """`merge`, `keyed`, or `trim` if only segments before the log start left the list."""
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Left:
    """A partition that stays as it was, and why."""

    topic: str
    partition: int
    reason: str


@dataclass(slots=True)
class Summary:
    compacted: list[Compacted] = field(default_factory=list)
    skipped: list[Left] = field(default_factory=list)
    failed: list[Left] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def records_in(self) -> int:
        return sum(each.records_in for each in self.compacted)

    @property
    def records_out(self) -> int:
        return sum(each.records_out for each in self.compacted)

    @property
    def bytes_in(self) -> int:
        return sum(each.bytes_in for each in self.compacted)

    @property
    def bytes_out(self) -> int:
        return sum(each.bytes_out for each in self.compacted)

    @property
    def ratio(self) -> float:
        """How many times smaller what was rewritten is now; 0 if nothing was."""
        return self.bytes_in / self.bytes_out if self.bytes_out else 0.0
