"""Progress and result of a compaction, for display by commands."""

from dataclasses import dataclass, field

from storage.formats.partitions import PartitionNumber


class CompactionProgress:
    """Receives progress reports; override the methods to use them."""

    def planned(self, partitions: int, size_bytes: int) -> None:
        """Report that this much more work is planned."""

    def done(self, records: int, size_bytes: int) -> None:
        """Report that this much was read and written, but not yet swapped in."""

    def swapped(self, partitions: int) -> None:
        """Report that this many more partitions are finished, successfully or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    topic: str
    partition: PartitionNumber
    kind: str
    """`merge`, `keyed`, or `trim` if only segments before the log start left the list."""
    records_in: int
    records_out: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True, slots=True)
class Left:
    """A partition that was not changed, and why."""

    topic: str
    partition: PartitionNumber
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
        """Input size divided by output size; 0 if nothing was written."""
        return self.bytes_in / self.bytes_out if self.bytes_out else 0.0
