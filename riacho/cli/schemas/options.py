"""What commands about schemas share: subjects with versions, files, references."""

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from riacho.cli.output import bad_usage, pairs
from riacho.schemas.values import SchemaKind, SchemaReference, SchemaText

if TYPE_CHECKING:
    from riacho.schemas.registry import SchemaRegistry


class FileType(StrEnum):
    """Types of schemas, as options name them."""

    AVRO = "avro"
    JSON = "json"
    PROTOBUF = "protobuf"


class LevelName(StrEnum):
    """Levels of compatibility, as options name them."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


Subject = Annotated[str, typer.Argument(help="Name of the subject, like orders-value.")]
SubjectVersion = Annotated[
    str,
    typer.Argument(metavar="SUBJECT[:VERSION]", help="A version is a number, or latest."),
]
File = Annotated[
    str, typer.Argument(metavar="FILE", help=".avsc, .proto or .json; - is stdin, with --type.")
]
Type = Annotated[
    FileType | None,
    typer.Option("--type", "-t", help="Of the schema. Default: by the name of the file."),
]
References = Annotated[
    list[str],
    typer.Option(
        "--reference",
        "-r",
        help="name=subject:version, a schema that this one refers to; repeatable.",
    ),
]
Normalize = Annotated[
    bool,
    typer.Option("--normalize", help="Schemas that differ only in order are the same."),
]

_KINDS: Final[dict[str, SchemaKind]] = {
    ".avsc": "AVRO",
    ".avro": "AVRO",
    ".proto": "PROTOBUF",
    ".json": "JSON",
    ".jsonschema": "JSON",
}
_VERSION: Final = re.compile(r"(.+):(latest|[0-9]{1,10}|)", re.DOTALL)


def registry_at(url: str) -> "SchemaRegistry":
    """Return the registry of a gateway; as with other commands, failures are seen at once."""
    from riacho.schemas.registry import SchemaRegistry

    return SchemaRegistry(url, retry_s=0)


def subject_and_version(text: str) -> tuple[str, "int | Literal['latest'] | None"]:
    """Return a subject, and its version if there is one behind it.

    A context in front (`:.staging:orders`) belongs to the subject. A name that ends like a version
    takes a colon behind it (`orders:1:`).
    """
    context = ""
    if text.startswith(":.") and (end := text.find(":", 2)) > 0:
        context, text = text[: end + 1], text[end + 1 :]
    found = _VERSION.fullmatch(text)
    if found is None:
        return context + text, None
    version = found[2]
    if version in ("", "latest"):
        return context + found[1], "latest" if version else None
    return context + found[1], int(version)


def schema_in(path: str, kind: FileType | None, references: list[str]) -> SchemaText:
    """Return the schema of a file, or of stdin."""
    if path == "-":
        if kind is None:
            raise bad_usage("stdin has no name that says the type; give --type", "--type")
        raw = sys.stdin.buffer.read()
    else:
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise bad_usage(f"{path}: {error.strerror}", "FILE") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise bad_usage(f"{path} is not text in UTF-8", "FILE") from None
    return SchemaText(
        text=text,
        kind=_kind(path) if kind is None else _kind_of(kind),
        references=tuple(_reference(name, text) for name, text in pairs(references, "--reference")),
    )


def _kind_of(kind: FileType) -> SchemaKind:
    names: dict[FileType, SchemaKind] = {
        FileType.AVRO: "AVRO",
        FileType.JSON: "JSON",
        FileType.PROTOBUF: "PROTOBUF",
    }
    return names[kind]


def _kind(path: str) -> SchemaKind:
    found = _KINDS.get(Path(path).suffix.lower())
    if found is None:
        raise bad_usage(
            f"the name of {path} does not say its type: .avsc, .proto or .json; give --type",
            "--type",
        )
    return found


def _reference(name: str, text: str) -> SchemaReference:
    subject, version = subject_and_version(text)
    # -1 is the latest, which the registry replaces by its number.
    number = version if isinstance(version, int) else -1
    return SchemaReference(name, subject, number)


def pretty(schema: SchemaText) -> str:
    """Return the text of a schema as people read it."""
    if schema.kind == "PROTOBUF":
        return schema.text
    return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
