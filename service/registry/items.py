"""The items of the registry: contexts, subjects and schemas.

schema-context/<context>            RSX1   the last id, level and mode
subject/<context>/<subject>         RSU1   its versions, level and mode
schema/<context>/<id>               RSC1   a schema, its text deflated; never changed
schema-text/<context>/<id>.<n>      the rest of a long text
schema-digest/<context>/<sha256>    RSI1   the id of the schema with these contents
schema-guid/<guid>/<context>        RSI1   the same
schema-use/<context>.<id>/<subject> RSN1   a subject that has the schema
schema-ref/<subject>/<version>.<by> RSN1   a version that refers to this one
"""

import zlib
from collections.abc import Mapping
from typing import Final

import msgspec

from storage.errors import Corrupt
from storage.formats import frames

TEXT_BYTES_MAX: Final = 1024 * 1024
"""Maximum size of a schema as text."""

PART_BYTES_MAX: Final = 300_000
"""Maximum size of a deflated text in one item; a schema has at most four of them."""

METADATA_BYTES_MAX: Final = 32 * 1024
"""Maximum size of metadata and rules together: of a schema, and of what is set for a subject."""

_SCHEMA: Final = b"RSC1"
_SUBJECT: Final = b"RSU1"
_CONTEXT: Final = b"RSX1"
_ID: Final = b"RSI1"
_NAME: Final = b"RSN1"


class SchemaReference(msgspec.Struct, array_like=True, frozen=True):
    """A schema that another one refers to."""

    name: str
    subject: str
    """Qualified if it is in another context than the one who refers."""
    version: int


class StoredSchema(msgspec.Struct, array_like=True, frozen=True):
    type: str
    text: bytes
    """Deflated; its first part, if there are several."""
    parts: int
    references: tuple[SchemaReference, ...]
    guid: str
    created_ms: int
    metadata: bytes = b""
    """JSON, as it came."""
    rule_set: bytes = b""


class SubjectVersion(msgspec.Struct, array_like=True, frozen=True):
    version: int
    schema_id: int
    is_deleted: bool = False


class SubjectRules(msgspec.Struct, array_like=True, frozen=True):
    """What holds in a context or a subject; None: what holds around it."""

    level: str | None = None
    mode: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    """The subject that is read instead, as `:.context:name`; not of contexts."""
    compatibility_group: str | None = None
    default_metadata: bytes | None = None
    """JSON, as the three below."""
    override_metadata: bytes | None = None
    default_rule_set: bytes | None = None
    override_rule_set: bytes | None = None
    validate_fields: bool | None = None


class SubjectHead(msgspec.Struct, array_like=True, frozen=True):
    context: str
    name: str
    versions: tuple[SubjectVersion, ...] = ()
    """In order; without those that were deleted permanently."""
    next_version: int = 1
    rules: SubjectRules = SubjectRules()

    def live(self) -> list[SubjectVersion]:
        return [each for each in self.versions if not each.is_deleted]

    def find(self, version: int) -> SubjectVersion | None:
        return next((each for each in self.versions if each.version == version), None)


class SchemaContext(msgspec.Struct, array_like=True, frozen=True):
    name: str
    last_id: int = 0
    rules: SubjectRules = SubjectRules()


class SchemaId(msgspec.Struct, array_like=True, frozen=True):
    context: str
    schema_id: int


class SchemaUser(msgspec.Struct, array_like=True, frozen=True):
    """A subject, or a version of it, that has or refers to a schema."""

    context: str
    subject: str
    version: int = 0


_SCHEMAS: Final = msgspec.msgpack.Decoder(StoredSchema)
_SUBJECTS: Final = msgspec.msgpack.Decoder(SubjectHead)
_CONTEXTS: Final = msgspec.msgpack.Decoder(SchemaContext)
_IDS: Final = msgspec.msgpack.Decoder(SchemaId)
_NAMES: Final = msgspec.msgpack.Decoder(SchemaUser)

_MAGICS: Final[Mapping[type, bytes]] = {
    StoredSchema: _SCHEMA,
    SubjectHead: _SUBJECT,
    SchemaContext: _CONTEXT,
    SchemaId: _ID,
    SchemaUser: _NAME,
}


def encode(item: msgspec.Struct) -> bytes:
    return frames.seal(_MAGICS[type(item)], msgspec.msgpack.encode(item))


def decode_schema(value: bytes) -> StoredSchema:
    return frames.unpack(_SCHEMA, value, _SCHEMAS, "a schema")


def decode_subject(value: bytes) -> SubjectHead:
    return frames.unpack(_SUBJECT, value, _SUBJECTS, "a subject")


def decode_context(value: bytes) -> SchemaContext:
    return frames.unpack(_CONTEXT, value, _CONTEXTS, "a context of schemas")


def decode_id(value: bytes) -> SchemaId:
    return frames.unpack(_ID, value, _IDS, "the id of a schema")


def decode_user(value: bytes) -> SchemaUser:
    return frames.unpack(_NAME, value, _NAMES, "the user of a schema")


def deflated(text: str) -> list[bytes]:
    """Return the text in parts that fit into items each."""
    whole = zlib.compress(text.encode(), 6)
    return [whole[at : at + PART_BYTES_MAX] for at in range(0, len(whole), PART_BYTES_MAX)]


def inflated(parts: list[bytes]) -> str:
    """Return the text that was deflated into `parts`, or raise `Corrupt`."""
    inflater = zlib.decompressobj()
    try:
        # Canonical text may be longer than what came, but never by so much.
        text = inflater.decompress(b"".join(parts), 8 * TEXT_BYTES_MAX)
        if not inflater.eof:
            raise Corrupt("the text of a schema is cut off, or too long")
        return text.decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise Corrupt(f"the text of a schema cannot be read: {error}") from error
