"""The values of `vectors.json`: as Python's libraries take them, and as other languages do.

Values of Avro that JSON has not are marked: {"$bytes": hex}, {"$date": …}, {"$millis": …},
{"$micros": …}, {"$uuid": …}, {"$decimal": …}, and {"$branch": name, "value": …} in a union.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

import google.type as google_type
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

HERE: Final = Path(__file__).parent
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
PROTO_PARTS: Final = {"shop/order.proto": ["shop/customer.proto"]}
"""What a file imports besides Google's files, which every registry knows."""


@dataclass(frozen=True)
class Case:
    name: str
    """Of the topic, too."""
    type: str
    text: str
    value: Any
    references: tuple[dict[str, Any], ...] = ()
    message: str = ""

    @property
    def subject(self) -> str:
        return f"{self.name}-value"

    def on(self, topic: str) -> Self:
        """Return the same with another topic."""
        return replace(self, name=topic)

    @property
    def body(self) -> dict[str, Any]:
        """What registers the schema."""
        return {"schema": self.text, "schemaType": self.type, "references": self.references}


def _text(schema: Any) -> str:
    if isinstance(schema, str) and schema.endswith(".proto"):
        return (HERE / schema).read_text()
    return json.dumps(schema, ensure_ascii=False)


def _referred(schema: Any) -> list[dict[str, Any]]:
    parts = PROTO_PARTS.get(schema, []) if isinstance(schema, str) else []
    return [{"name": each, "subject": each, "version": 1} for each in parts]


_ALL: Final = json.loads((HERE / "vectors.json").read_text())
CASES: Final = [
    Case(
        each["name"],
        each["type"],
        _text(each["schema"]),
        each["value"],
        tuple(each.get("references", _referred(each["schema"]))),
        each.get("message", ""),
    )
    for each in _ALL["cases"]
]
REFERRED: Final = {
    **{each["subject"]: (each["type"], _text(each["schema"])) for each in _ALL["referred"]},
    **{each: ("PROTOBUF", _text(each)) for parts in PROTO_PARTS.values() for each in parts},
}
"""Type and text of each subject that cases refer to."""


def descriptors() -> FileDescriptorSet:
    """Return all that the cases' `.proto` files say, under their own names."""
    google = Path(next(iter(google_type.__path__))).parent.parent
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made")
        command = [str(Path(sys.executable).with_name("protoc")), f"-I{HERE}", f"-I{google}"]
        command += ["--include_imports", f"--descriptor_set_out={made}"]
        files = {each for case in CASES if case.message for each in PROTO_PARTS}
        subprocess.run([*command, *sorted(files)], check=True, timeout=60)
        return FileDescriptorSet.FromString(made.read_bytes())


def message_classes(files: FileDescriptorSet) -> dict[str, type[Message]]:
    """Return the class of each case's message."""
    pool = DescriptorPool()
    for each in files.file:
        pool.Add(each)
    names = {case.message for case in CASES if case.message}
    return {name: GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def native(value: Any, *, tagged: bool = True) -> Any:
    """Return the value of Avro as fastavro takes it; not `tagged`, as it gives it back."""
    if isinstance(value, list):
        return [native(each, tagged=tagged) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$bytes": text}:
            return bytes.fromhex(text)
        case {"$date": text}:
            return date.fromisoformat(text)
        case {"$millis": number}:
            return EPOCH + timedelta(milliseconds=number)
        case {"$micros": number}:
            return EPOCH + timedelta(microseconds=number)
        case {"$uuid": text}:
            return UUID(text)
        case {"$decimal": text}:
            return Decimal(text)
        case {"$branch": name, "value": inner}:
            found = native(inner, tagged=tagged)
            return (name, found) if tagged else found
        case _:
            return {name: native(each, tagged=tagged) for name, each in value.items()}


def flat(value: Any, *, tagged: bool = True) -> Any:
    """Return the value of Avro with what its bytes say, whatever their meaning."""
    if isinstance(value, list):
        return [flat(each, tagged=tagged) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$bytes": _}:
            return value
        case {"$date": text}:
            return (date.fromisoformat(text) - EPOCH.date()).days
        case {"$millis": number} | {"$micros": number}:
            return number
        case {"$uuid": text}:
            return text
        case {"$decimal": text}:
            scaled = int(text.replace(".", ""))
            size = scaled.bit_length() // 8 + 1
            return {"$bytes": scaled.to_bytes(size, signed=True).hex()}
        case {"$branch": name, "value": inner}:
            found = flat(inner, tagged=tagged)
            return {name: found} if tagged else found
        case _:
            return {name: flat(each, tagged=tagged) for name, each in value.items()}
