"""Which topics, groups and configs are copied, what topics are called here, who copies which."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

IDENTITY: Final = "IdentityReplicationPolicy"
DEFAULT_POLICY: Final = "DefaultReplicationPolicy"
PATTERN_CHARS_MAX: Final = 10_000

Chosen = Callable[[str], bool]


def chosen(patterns: Sequence[str], excluded: Sequence[str]) -> Chosen:
    """Return whether a name matches one of `patterns` as a whole and none that is excluded.

    Raises `ValueError` for what is no pattern of RE2.
    """
    wanted, unwanted = _pattern(patterns), _pattern(excluded)
    return lambda name: wanted(name) and not unwanted(name)


def _pattern(patterns: Sequence[str]) -> Chosen:
    import re2

    text = "|".join(f"(?:{each.strip()})" for each in patterns if each.strip())
    if not text:
        return lambda _: False
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError(f"has {len(text)} characters, of at most {PATTERN_CHARS_MAX}")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Any = re2.compile(text, options)
    except re2.error as error:
        raise ValueError(f"is no pattern of RE2: {error}") from None
    return lambda name: compiled.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Naming:
    """How topics of the source are called here."""

    source: str
    separator: str = "."
    is_identity: bool = False
    target: str = ""

    def here(self, topic: str) -> str:
        return topic if self.is_identity else f"{self.source}{self.separator}{topic}"

    def is_ours(self, topic: str) -> bool:
        """Return whether a topic of the source was mirrored from here: it would go round."""
        return bool(self.target) and topic.startswith(f"{self.target}{self.separator}")


@dataclass(frozen=True)
class PartitionShare:
    """The partitions of one task: every task can tell them from their names alone."""

    number: int = 0
    count: int = 1

    def has(self, topic: str, partition: int) -> bool:
        return (zlib.crc32(topic.encode()) + partition) % self.count == self.number

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


def share_of(text: str) -> PartitionShare:
    """Return what `str` of a share says. Raises `ValueError`."""
    number, _, count = text.partition("/")
    share = PartitionShare(int(number), int(count))
    if not 0 <= share.number < share.count:
        raise ValueError(f"{text!r} is not a share like 0/4")
    return share
