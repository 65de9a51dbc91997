"""What the registry knows, as values."""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from riacho.errors import new_error
from storage.errors import InvalidSchemaText

SchemaKind: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]

KINDS: Final[tuple[SchemaKind, ...]] = ("AVRO", "JSON", "PROTOBUF")

LEVELS: Final = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE"),
    *("FULL", "FULL_TRANSITIVE"),
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A registered schema that another one refers to."""

    name: str
    """As the other one calls it: Avro's full name, the URL of a `$ref`, the path of an import."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaText:
    """A schema that may be registered."""

    text: str
    kind: SchemaKind = "AVRO"
    references: tuple[SchemaReference, ...] = ()

    def body(self) -> dict[str, Any]:
        """Return what the registry's calls take."""
        body: dict[str, Any] = {"schema": self.text, "schemaType": self.kind}
        if self.references:
            body["references"] = [
                {"name": each.name, "subject": each.subject, "version": each.version}
                for each in self.references
            ]
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema(SchemaText):
    """A registered schema; `subject` and `version` are known if it was asked for by them."""

    id: int
    guid: str = ""
    subject: str = ""
    version: int = 0
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """A rule that a schema breaks beside an older one."""

    rule: str
    """Confluent's name of it, like READER_FIELD_MISSING_DEFAULT_VALUE."""
    path: str
    side: str
    """Which schema the path is in, because it cannot read data of the other: new or old."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCheck:
    """Whether a schema keeps a level."""

    is_compatible: bool
    violations: tuple[SchemaViolation, ...] = ()
    version: int | None = None
    """The version with which it is not compatible, the newest of them."""


def registered(document: dict[str, Any], **known: Any) -> RegisteredSchema:
    """Return the schema that an answer describes."""
    references = tuple(
        SchemaReference(each["name"], each["subject"], each["version"])
        for each in document.get("references") or ()
    )
    return RegisteredSchema(
        text=document["schema"],
        kind=document.get("schemaType") or "AVRO",
        references=references,
        id=int(document.get("id") or known.get("id") or 0),
        guid=document.get("guid") or "",
        subject=document.get("subject") or known.get("subject", ""),
        version=int(document.get("version") or 0),
        is_deleted=document.get("deleted") is True,
    )


_VIOLATION: Final = re.compile(
    r"\{errorType:'(?P<rule>[^']*)', description:[\"'](?P<text>.*?)"
    r"(?:, at path '(?P<path>[^']*)' of the (?P<side>new|old) schema)?[\"']"
    r"(?:, additionalInfo:'[^']*')?\}",
    re.DOTALL,
)
_OLD_VERSION: Final = re.compile(r"\{oldSchemaVersion: (\d+)\}")
_INVALID: Final = "Invalid schema"
_OTHERWISE_KNOWN: Final = ("{oldSchema: ", "{compatibility: ")


def check_of(document: dict[str, Any]) -> SchemaCheck:
    """Return the verdict that an answer with `verbose=true` tells.

    Raises `InvalidSchemaText` if there is none: then the registry says why among its messages.
    """
    violations = []
    version = None
    for message in document.get("messages") or ():
        if message.startswith(_INVALID):
            raise new_error(InvalidSchemaText, message, status=422, error_code=42201)
        if (found := _OLD_VERSION.fullmatch(message)) is not None:
            version = int(found[1])
        elif not message.startswith(_OTHERWISE_KNOWN):
            violations.append(_violation(message))
    return SchemaCheck(
        is_compatible=document["is_compatible"] is True,
        violations=tuple(violations),
        version=version,
    )


def _violation(message: str) -> SchemaViolation:
    found = _VIOLATION.fullmatch(message)
    if found is None:  # Worded by another registry.
        return SchemaViolation("", "", "", message)
    return SchemaViolation(found["rule"], found["path"] or "", found["side"] or "", found["text"])
