"""Schemas made to take time or memory: each is answered soon, and in little memory."""

import base64
import resource
from collections.abc import Callable
from time import process_time

import pytest

from service.registry.formats.protobuf.form import FORM
from storage.schemas.source import InvalidSchema, Named
from tests.fuzz.memory import taken_bytes

TEXT_BYTES = 1 << 20
CPU_S_MAX = 1.9
"""A second for protoc, which the kernel counts, and less than one for us. Time that passes says
nothing on a machine with other work."""
MEMORY_BYTES_MAX = 64 << 20

HEAD = 'syntax="proto3";'


def repeated(part: str, before: str = "message M{", after: str = "}") -> str:
    """Return a text of a megabyte; `@` in `part` is the number of the repetition."""
    parts, size, number = [], 0, 0
    while size < TEXT_BYTES - 1000:
        number += 1
        parts.append(part.replace("@", str(number if number < 19000 else number + 1000)))
        size += len(parts[-1])
    return f"{HEAD}{before}{''.join(parts)}{after}"


def nested_descriptor(depth: int) -> str:
    """Return base64 of a file whose messages nest; lengths are right at every depth."""
    body = b"\x0a\x01M"
    for _ in range(depth):
        size, value = b"", len(body)
        while value > 127:
            size += bytes([value & 127 | 128])
            value >>= 7
        body = b"\x0a\x01M\x1a" + size + bytes([value]) + body
    return base64.b64encode(body.replace(b"\x1a", b"\x22", 1)).decode()


OPTIONS = 'import "google/protobuf/descriptor.proto";extend google.protobuf.FileOptions'
BOMBS = {
    "messages nested 10,000 deep": "message M{" * 10_000 + "}" * 10_000,
    "messages that never end": "message M{" * 100_000,
    "fields": repeated("int32 f@=@;"),
    "maps": repeated("map<int32,M>f@=@;"),
    "optional fields": repeated("optional M f@=@;"),
    "oneofs": repeated("oneof o@{int32 f@=@;}"),
    "messages": repeated("message M@{}"),
    "an enum": repeated("V@=@;", "enum E{Z=0;"),
    "an enum of one number": repeated("V@=0;", "enum E{option allow_alias=true;"),
    "reserved numbers": repeated("@,", "message M{reserved ", "536870911;}"),
    "reserved names": repeated('"n@",', "message M{reserved ", '"n";}'),
    "methods": repeated("rpc A@(M)returns(M);", "message M{}service S{"),
    "options": repeated("option(o)=1;", OPTIONS + "{repeated int32 o=5000;}", ""),
    "a deep option": f"{HEAD}{OPTIONS}{{A o=5000;}}message A{{A a=1;}}option(o)={{"
    + "a{" * 10_000
    + "}" * 10_000
    + "};",
    "a long string": f'message M{{optional string a=1[default="{"x" * 1_000_000}"];}}',
    "escapes": f'message M{{optional bytes a=1[default="{chr(92)}000{"x" * 900_000}"];}}',
    "a comment": "/*" + "*" * 1_000_000,
    "imports": repeated('import "a@";', "", ""),
    "one field many times": repeated("int32 x=1;"),
    "words": "x " * 500_000,
    "mistakes": repeated("x x=1;"),
    "entries of maps": repeated("message E@{option map_entry=true;}", "message M{"),
    "braces before an entry": "{" * 1_000_000 + "option map_entry=true;",
    "comments before an entry": "/*" * 500_000 + "map_entry",
    "quotes before an entry": '"\\' * 500_000 + "map_entry",
    "blanks before an entry": "message" + " " * 1_000_000 + "map_entry",
    "letters": "A" * 1_000_000,
    "zeros": "\x00" * 1_000_000,
    "a deep descriptor": nested_descriptor(90),
    "a deeper descriptor": nested_descriptor(10_000),
    "a descriptor of zeros": base64.b64encode(bytes(700_000)).decode(),
    "a descriptor of empty messages": base64.b64encode(b"\x22\x00" * 350_000).decode(),
    "a descriptor of imports": base64.b64encode(b"\x1a\x01a" * 230_000).decode(),
}


def cpu_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + spent.ru_utime + spent.ru_stime


def answer(text: str) -> str:
    try:
        schema = FORM.parse(text, [])
        return schema.normalized if not schema.unreadable(schema) else "differs from itself"
    except InvalidSchema as refused:
        return str(refused)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_answered_within_its_limits(name: str) -> None:
    text = BOMBS[name][:TEXT_BYTES]
    before = cpu_s()
    said = answer(text)
    assert cpu_s() - before < CPU_S_MAX
    assert said
    assert said != "differs from itself"


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_little_memory(name: str) -> None:
    text = BOMBS[name][:TEXT_BYTES]
    assert taken_bytes(lambda: answer(text)) < MEMORY_BYTES_MAX


def test_what_is_refused_for_its_size_says_so() -> None:
    assert answer(BOMBS["fields"]) == (
        "the schema takes more than 64 MiB to compile: make it smaller"
    )


def a_million_fields() -> tuple[str, list[Named]]:
    """Return a schema of many files, each as large as one may be."""
    files = [
        Named(f"f{file}.proto", repeated("int32 f@=@;", f"package p{file};message M{{"))
        for file in range(20)
    ]
    return HEAD + "".join(f'import "{each.name}";' for each in files), files


def test_a_million_fields_in_references_are_refused() -> None:
    text, files = a_million_fields()
    before = cpu_s()
    with pytest.raises(InvalidSchema, match="64 MiB"):
        FORM.parse(text, files)
    assert cpu_s() - before < CPU_S_MAX


def doubling(kind: Callable[[int], str]) -> str:
    """Return messages each of which holds the next one twice."""
    return "".join(f"message M{at}{{{kind(at + 1)} a=1;{kind(at + 1)} b=2;}}" for at in range(5000))


def test_messages_that_hold_each_other_many_times_are_compared_once() -> None:
    body = f"{HEAD}package p;{doubling(lambda at: f'M{at}')}message M5000{{%s a=1;}}"
    text = f'{HEAD}import "x.proto";message M{{p.M0 a=1;}}'
    old = FORM.parse(text, [Named("x.proto", body % "int32")])
    new = FORM.parse(text, [Named("x.proto", body % "string")])
    before = cpu_s()
    found = new.unreadable(old)
    assert cpu_s() - before < CPU_S_MAX
    assert {each.kind for each in found} == {
        "FIELD_SCALAR_KIND_CHANGED",
        "FIELD_NAMED_TYPE_CHANGED",
    }
