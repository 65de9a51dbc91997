"""Levels of compatibility, and whether a schema keeps one. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from service.registry.formats.form import Incompatibility, Parsed
from service.registry.formats.metadata import property_of
from storage.schemas.source import SchemaType

NEW_READS_OLD: Final = "NEW_READS_OLD"
OLD_READS_NEW: Final = "OLD_READS_NEW"

MESSAGES_MAX: Final = 100
"""Maximum number of reasons that are returned."""


RESERVED: Final = "confluent:reserved"
"""The property that lists names, with commas between them."""


class Level(StrEnum):
    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all versions count, not only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def directions(self) -> tuple[Literal["NEW_READS_OLD", "OLD_READS_NEW"], ...]:
        """Return which of two schemas must read data of the other."""
        if self is Level.NONE:
            return ()
        match self.removesuffix("_TRANSITIVE"):
            case "BACKWARD":
                return (NEW_READS_OLD,)
            case "FORWARD":
                return (OLD_READS_NEW,)
            case _:
                return (NEW_READS_OLD, OLD_READS_NEW)


@dataclass(frozen=True, slots=True)
class OldVersion:
    """A version that a new schema is compared with."""

    version: int
    type: SchemaType
    schema: Parsed


def violations(
    level: Level, kind: SchemaType, new: Parsed, versions: Sequence[OldVersion]
) -> list[str]:
    """Return why the new schema does not keep `level` beside `versions`, the newest first."""
    found: list[str] = []
    for old in versions:
        why = list(_between(level, kind, new, old))
        if why:
            found += [*why[:MESSAGES_MAX], f"{{oldSchemaVersion: {old.version}}}"]
            found += [f"{{oldSchema: '{old.schema.canonical:.2000}'}}"]
            found += [f"{{compatibility: '{level}'}}"]
            return found
    return found


def misused_fields(fields: Collection[str], metadata: bytes, old_metadata: bytes) -> list[str]:
    """Return how a schema breaks the rules of `validateFields`, after one with `old_metadata`.

    What `confluent:reserved` lists stays reserved, and no field has such a name.
    """
    ours, theirs = _reserved(metadata), _reserved(old_metadata)
    return [
        *(
            f"{{errorType:'RESERVED_FIELD_REMOVED', description:\"the metadata of the new schema"
            f" does not reserve '{name}' as the old one does\", additionalInfo:'{name}'}}"
            for name in sorted(theirs - ours)
        ),
        *(
            f"{{errorType:'FIELD_CONFLICTS_WITH_RESERVED_FIELD', description:\"the new schema has"
            f" a field '{name}', which its metadata reserves\", additionalInfo:'{name}'}}"
            for name in sorted(ours & set(fields))
        ),
    ][:MESSAGES_MAX]


def _reserved(metadata: bytes) -> set[str]:
    names = (property_of(metadata, RESERVED) or "").split(",")
    return {name.strip() for name in names} - {""}


def _between(level: Level, kind: SchemaType, new: Parsed, old: OldVersion) -> list[str]:
    if level is not Level.NONE and kind is not old.type:
        return [f"{{errorType:'SCHEMA_TYPE_CHANGED', description:'{old.type} became {kind}'}}"]
    found: list[str] = []
    for direction in level.directions:
        reader, writer = (new, old.schema) if direction == NEW_READS_OLD else (old.schema, new)
        which = "new" if direction == NEW_READS_OLD else "old"
        found += [_told(each, which) for each in reader.unreadable(writer)]
    return found


def _told(found: Incompatibility, which: str) -> str:
    return (
        f"{{errorType:'{found.kind}', description:\"{found.message}, at path '{found.path}' of the"
        f" {which} schema\", additionalInfo:'{found.path}'}}"
    )
