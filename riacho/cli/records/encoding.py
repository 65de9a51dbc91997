"""Lines that are JSON become data of a schema: `riacho produce --schema`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from riacho.cli.output import bad_usage, note
from riacho.cli.schemas.options import registry_at, schema_in, subject_and_version
from storage.errors import InvalidRecord, UnknownSchema

if TYPE_CHECKING:
    from riacho.schemas.registry import SchemaRegistry
    from riacho.schemas.values import RegisteredSchema

Encode = Callable[[bytes], bytes | None]

ValueSchema = Annotated[
    str,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="Lines are JSON, written by this schema: .avsc, .proto or .json. It is registered"
        " under TOPIC-value if need be.",
    ),
]
ValueSubject = Annotated[
    str,
    typer.Option(
        "--schema-subject", metavar="SUBJECT[:VERSION]", help="By a schema that is registered."
    ),
]
ValueId = Annotated[int | None, typer.Option("--schema-id", min=1, help="By the schema of an id.")]
KeySchema = Annotated[
    str,
    typer.Option("--key-schema", metavar="FILE", help="The same for keys, which -k splits off."),
]
KeySubject = Annotated[
    str,
    typer.Option("--key-schema-subject", metavar="SUBJECT[:VERSION]", help="The same for keys."),
]
KeyId = Annotated[int | None, typer.Option("--key-schema-id", min=1, help="The same for keys.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChoice:
    """The schema of keys or of values, as options name it."""

    what: str
    """key, or value."""
    file: str
    subject: str
    schema_id: int | None

    def __post_init__(self) -> None:
        if bool(self.file) + bool(self.subject) + (self.schema_id is not None) > 1:
            raise bad_usage("name the schema once: a file, a subject, or an id", self.option)

    @property
    def option(self) -> str:
        return "--key-schema" if self.what == "key" else "--schema"

    @property
    def is_given(self) -> bool:
        return bool(self.file or self.subject) or self.schema_id is not None


def encoders(
    url: str, topic: str, key: SchemaChoice, value: SchemaChoice
) -> tuple[Encode | None, Encode | None]:
    """Return what encodes keys and values; None: they are written as they are."""
    if not (key.is_given or value.is_given):
        return None, None
    with registry_at(url) as registry:
        found = [
            _encoder(registry, topic, each) if each.is_given else None for each in (key, value)
        ]
    return found[0], found[1]


def _encoder(registry: "SchemaRegistry", topic: str, choice: SchemaChoice) -> Encode:
    import msgspec

    from riacho.schemas.codecs import Codecs
    from riacho.schemas.serializers import writer_of
    from storage.schemas.framing import prefix_of

    schema = _chosen(registry, topic, choice)
    write = writer_of(registry.wait_for(Codecs(registry.twin).of(schema)))
    prefix = prefix_of(schema.id)
    decode = msgspec.json.Decoder().decode

    def encode(text: bytes) -> bytes | None:
        try:
            value = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRecord(f"the {choice.what} is not JSON: {error}") from None
        if value is None:
            return None
        try:
            return prefix + write(value)
        except InvalidRecord as error:
            raise InvalidRecord(f"the {choice.what} does not fit: {error}") from None

    return encode


def _chosen(registry: "SchemaRegistry", topic: str, choice: SchemaChoice) -> "RegisteredSchema":
    if choice.schema_id is not None:
        return registry.schema(choice.schema_id)
    if choice.subject:
        subject, version = subject_and_version(choice.subject)
        return registry.version(subject, version or "latest")
    subject = f"{topic}-{choice.what}"
    text = schema_in(choice.file, None, [])
    try:
        return registry.look_up(subject, text)
    except UnknownSchema:
        made = registry.register(subject, text)
        note(f"{choice.file} was registered under {subject}, id {made.id}")
        return made
