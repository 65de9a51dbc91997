"""What clients of the schema registry did and saw, and what its table held.

A schema is its *label*, a short text that is different for different schemas and begins with the
type of its only field: `int.3`. Schemas with references name them, too: `int.3>base:2`. A code is 0
for a call that was carried out, null for one whose outcome is not known, else the error's.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Numbered(NamedTuple):
    """A version of a subject."""

    version: int
    schema_id: int
    is_deleted: bool = False


class Referring(NamedTuple):
    """A version that refers to another one, and whether they are there."""

    by: str
    by_version: int
    is_by_deleted: bool
    to: str
    to_version: int
    state: str
    """`live`, `deleted` (softly), or `gone`."""


@dataclass(frozen=True)
class Registering:
    client: int
    subject: str
    schema: str
    began_s: float
    ended_s: float
    code: int | None
    schema_id: int | None = None
    version: int | None = None


@dataclass(frozen=True)
class Deleting:
    client: int
    subject: str
    version: int
    """0: all versions of the subject."""
    is_permanent: bool
    began_s: float
    ended_s: float
    code: int | None
    gone: tuple[int, ...] = ()


@dataclass(frozen=True)
class SchemaLook:
    """A question. `asks` is `id`, `version`, `schema` (is it in this subject?) or `versions`."""

    client: int
    asks: str
    subject: str
    """Of an id: its context."""
    about: str
    """The id, the version or the schema."""
    began_s: float
    ended_s: float
    code: int | None
    schema: str | None = None
    schema_id: int | None = None
    version: int | None = None
    listed: tuple[int, ...] = ()


@dataclass(frozen=True)
class SubjectChange:
    """One transaction of the table, as far as it changed the versions of a subject."""

    at_s: float
    subject: str
    was: tuple[Numbered, ...]
    became: tuple[Numbered, ...]
    level: str
    """In force at that moment, as is the mode."""
    mode: str
    references: tuple[Referring, ...] = ()
    """From its versions, and to them, after the change."""


@dataclass(frozen=True)
class StoredSchema:
    """A schema in the table, at the end."""

    context: str
    schema_id: int
    schema: str
    digest_id: int | None
    """What its digest leads to; None: nothing."""
    guid_id: int | None
    users: tuple[str, ...]
    """Subjects that are noted as having it."""
    refers: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class StoredSubject:
    """A subject in the table, at the end."""

    subject: str
    versions: tuple[Numbered, ...]
    referrers: tuple[tuple[int, str, int], ...] = ()
    """Versions of it, and the versions of other subjects that are noted as referring to them."""


@dataclass(frozen=True)
class LastId:
    context: str
    number: int


@dataclass
class SchemaHistory:
    registered: list[Registering] = field(default_factory=list)
    deleted: list[Deleting] = field(default_factory=list)
    looks: list[SchemaLook] = field(default_factory=list)
    changes: list[SubjectChange] = field(default_factory=list)
    schemas: list[StoredSchema] = field(default_factory=list)
    subjects: list[StoredSubject] = field(default_factory=list)
    last_ids: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    """Answers that no client of the registry should ever receive."""


DONE = 0


def context_of(subject: str) -> str:
    """Return the context of a subject, or of a context as it is written before subjects."""
    return subject.split(":")[1] if subject.startswith(":.") else "."
