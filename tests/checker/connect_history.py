"""What runs of connectors' tasks did, what their targets got, and what table and log held.

A record is `<source>/<partition>:<number>`, and has a mark at its end if it is bad: `!` if the
source's converter refuses it, `?` if the converter of every sink does. Its dead letter has the same
text. A position of a source is the number of the last record that was committed.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

STARTED: Final = "STARTED"

BAD_FOR_SOURCE: Final = "!"
BAD_FOR_SINK: Final = "?"

ConnectorKind = Literal["source", "plain", "filling", "holding"]
"""A source, or a sink: one that writes with each flush, now and then, or with its own positions."""

ConnectPlace = tuple[str, int]
"""A topic and a partition of it."""

LETTERS: Final = "letters-"
"""What the topic of a connector's dead letters begins with."""


@dataclass(frozen=True)
class RunCommit:
    """A commit of a run of a task, or its beginning. `token` is known if it was answered."""

    connector: str
    task: int
    run: int
    epoch: int
    """Of the lease under which the run began."""
    began_s: float
    ended_s: float
    code: int | None
    """0: committed, None: not known, 1: refused."""
    token: str = ""


@dataclass(frozen=True)
class TaskChange:
    """One transaction of the table that committed for a task, or began a run of it."""

    at_s: float
    connector: str
    task: int
    token: str
    epoch: int
    """Of the lease, as it was then."""


@dataclass(frozen=True)
class PositionChange:
    """One transaction of the table that moved a position of a source, or an offset of a sink."""

    at_s: float
    connector: str
    partition: int
    number: int


@dataclass(frozen=True)
class StateCall:
    client: int
    connector: str
    does: str
    """`pause`, `stop`, `resume`, `restart`, `change` or `create`."""
    began_s: float
    ended_s: float
    code: int | None
    """0: carried out, None: not known, else the status."""


@dataclass(frozen=True)
class Taken:
    """A record that a target holds, in the order in which it got them."""

    connector: str
    topic: str
    partition: int
    offset: int
    value: str
    at_s: float


@dataclass(frozen=True)
class StoredConnector:
    """A connector in the end."""

    name: str
    kind: ConnectorKind
    target: str
    counts: tuple[int, ...] = ()
    """Of a source: how many records each of its partitions has."""
    topic: str = ""
    """What it writes to, or reads."""
    committed: dict[int, int] = field(default_factory=dict)
    """Of a sink: the offset behind what is committed, by partition."""


@dataclass
class ConnectHistory:
    commits: list[RunCommit] = field(default_factory=list)
    changes: list[TaskChange] = field(default_factory=list)
    positions: list[PositionChange] = field(default_factory=list)
    calls: list[StateCall] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    connectors: list[StoredConnector] = field(default_factory=list)
    final: dict[ConnectPlace, list[tuple[int, str]]] = field(default_factory=dict)
    """Topics of records and of dead letters."""
    errors: list[str] = field(default_factory=list)
    """Why calls and tasks failed that should not have."""
