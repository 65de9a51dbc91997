"""Every rule of compatibility, in both directions, with its name and its path."""

import pytest

from service.registry.formats.form import Incompatibility
from service.registry.formats.protobuf.form import FORM
from storage.schemas.source import Named

PROTO3 = 'syntax = "proto3"; package p; '
PROTO2 = 'syntax = "proto2"; package p; '

KIND = "FIELD_KIND_CHANGED #/M/1"
SCALAR = "FIELD_SCALAR_KIND_CHANGED #/M/1"
LABEL = "FIELD_NUMERIC_LABEL_CHANGED #/M/1"
TYPE = "FIELD_NAMED_TYPE_CHANGED #/M/1"

# Bodies of two messages; what keeps a reader with the second from data of the first; and back.
FIELDS: list[tuple[str, str, set[str], set[str]]] = [
    # Nothing that data depends on.
    ("int32 a = 1;", "int32 b = 1;", set(), set()),
    ("int32 a = 1;", "int32 a = 1; int32 b = 2;", set(), set()),
    ("int32 a = 1; int32 b = 2;", "int32 b = 2; int32 a = 1;", set(), set()),
    ("int32 a = 1;", "int32 a = 2;", set(), set()),
    ("int32 a = 1;", "reserved 1;", set(), set()),
    ("E a = 1; enum E { X = 0; Y = 1; }", "E a = 1; enum E { X = 0; Z = 1; }", set(), set()),
    ("E a = 1; enum E { X = 0; Y = 1; }", "E a = 1; enum E { X = 0; }", set(), set()),
    ("enum E { X = 0; }", "", set(), set()),
    # Scalars whose encodings agree.
    ("int32 a = 1;", "uint64 a = 1;", set(), set()),
    ("int64 a = 1;", "bool a = 1;", set(), set()),
    ("uint32 a = 1;", "E a = 1; enum E { X = 0; }", set(), set()),
    ("sint32 a = 1;", "sint64 a = 1;", set(), set()),
    ("fixed32 a = 1;", "sfixed32 a = 1;", set(), set()),
    ("fixed64 a = 1;", "sfixed64 a = 1;", set(), set()),
    ("string a = 1;", "bytes a = 1;", set(), set()),
    # Scalars whose encodings do not.
    ("int32 a = 1;", "sint32 a = 1;", {SCALAR}, {SCALAR}),
    ("int32 a = 1;", "string a = 1;", {SCALAR}, {SCALAR}),
    ("int32 a = 1;", "fixed32 a = 1;", {SCALAR}, {SCALAR}),
    ("fixed32 a = 1;", "fixed64 a = 1;", {SCALAR}, {SCALAR}),
    ("fixed32 a = 1;", "float a = 1;", {SCALAR}, {SCALAR}),
    ("fixed64 a = 1;", "double a = 1;", {SCALAR}, {SCALAR}),
    ("float a = 1;", "double a = 1;", {SCALAR}, {SCALAR}),
    ("bytes a = 1;", "E a = 1; enum E { X = 0; }", {SCALAR}, {SCALAR}),
    # Scalars, messages and maps.
    ("N a = 1; message N {}", "int32 a = 1; message N {}", {KIND}, {KIND}),
    ("N a = 1; message N {}", "bytes a = 1; message N {}", {KIND}, {KIND}),
    ("map<string, int32> a = 1;", "string a = 1;", {KIND}, {KIND}),
    (
        "map<string, int32> a = 1;",
        "repeated N a = 1; message N {}",
        {KIND},
        {KIND, "MESSAGE_REMOVED #/M/N"},
    ),
    ("map<string, int32> a = 1;", "map<string, int64> a = 1;", set(), set()),
    ("map<string, int32> a = 1;", "map<int32, int32> a = 1;", {SCALAR}, {SCALAR}),
    ("map<string, int32> a = 1;", "map<string, string> a = 1;", {SCALAR}, {SCALAR}),
    (
        "map<string, N> a = 1; message N {}",
        "map<string, int32> a = 1; message N {}",
        {KIND},
        {KIND},
    ),
    (
        "map<string, N> a = 1; message N {} message O {}",
        "map<string, O> a = 1; message N {} message O {}",
        {TYPE},
        {TYPE},
    ),
    ("map<string, int32> a = 1;", "", set(), set()),
    # Labels.
    ("optional int32 a = 1;", "repeated int32 a = 1;", {LABEL}, {LABEL}),
    ("int32 a = 1;", "repeated int32 a = 1;", set(), {LABEL}),
    ("int32 a = 1;", "optional int32 a = 1;", set(), set()),
    ("optional double a = 1;", "repeated double a = 1;", {LABEL}, {LABEL}),
    ("optional string a = 1;", "repeated string a = 1;", set(), set()),
    ("optional N a = 1; message N {}", "repeated N a = 1; message N {}", set(), set()),
    # Messages.
    ("message N {}", "", {"MESSAGE_REMOVED #/M/N"}, set()),
    ("message N { message O {} }", "message N {}", {"MESSAGE_REMOVED #/M/N/O"}, set()),
    (
        "message N { int32 a = 1; }",
        "message N { string a = 1; }",
        {"FIELD_SCALAR_KIND_CHANGED #/M/N/1"},
        {"FIELD_SCALAR_KIND_CHANGED #/M/N/1"},
    ),
    ("N a = 1; message N {} message O {}", "O a = 1; message N {} message O {}", {TYPE}, {TYPE}),
    (
        "N a = 1; message N {}",
        "O a = 1; message O {}",
        {TYPE, "MESSAGE_REMOVED #/M/N"},
        {TYPE, "MESSAGE_REMOVED #/M/O"},
    ),
    ("N a = 1; message N {}", "p.M.N a = 1; message N {}", set(), set()),
    ("message N {} message O {}", "message O {} message N {}", set(), set()),
    (
        "M a = 1; N b = 2; message N { M c = 1; }",
        "M a = 1; N b = 2; message N { M c = 1; }",
        set(),
        set(),
    ),
    # Oneofs.
    ("int32 a = 1;", "oneof o { int32 a = 1; }", set(), set()),
    (
        "int32 a = 1;",
        "oneof o { int32 a = 1; int32 b = 2; }",
        set(),
        {"ONEOF_FIELD_REMOVED #/M/o/2"},
    ),
    (
        "oneof o { int32 a = 1; }",
        "oneof o { int32 a = 1; int32 b = 2; }",
        set(),
        {"ONEOF_FIELD_REMOVED #/M/o/2"},
    ),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "oneof q { int32 a = 1; int32 b = 2; }",
        set(),
        set(),
    ),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "oneof q { int32 a = 1; }",
        {"ONEOF_FIELD_REMOVED #/M/o/2"},
        set(),
    ),
    ("oneof o { int32 a = 1; int32 b = 2; }", "int32 c = 3;", set(), set()),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "int32 a = 1; int32 b = 2;",
        set(),
        {"MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"},
    ),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "oneof o { int32 a = 1; } int32 b = 2;",
        set(),
        {"FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"},
    ),
    (
        "oneof o { int32 a = 1; } oneof q { int32 b = 2; }",
        "oneof o { int32 a = 1; int32 b = 2; }",
        {"FIELD_MOVED_TO_EXISTING_ONEOF #/M/o"},
        set(),
    ),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "oneof o { int32 a = 1; string b = 2; }",
        {"FIELD_SCALAR_KIND_CHANGED #/M/o/2"},
        {"FIELD_SCALAR_KIND_CHANGED #/M/o/2"},
    ),
    (
        "oneof o { int32 a = 1; int32 b = 2; }",
        "int32 a = 1; string b = 2;",
        {"FIELD_SCALAR_KIND_CHANGED #/M/2"},
        {"FIELD_SCALAR_KIND_CHANGED #/M/o/2", "MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"},
    ),
    (
        "optional int32 a = 1; optional int32 b = 2;",
        "oneof o { int32 a = 1; int32 b = 2; }",
        {"MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o"},
        set(),
    ),
]

REQUIRED_ADDED = "REQUIRED_FIELD_ADDED #/M/1"
REQUIRED_REMOVED = "REQUIRED_FIELD_REMOVED #/M/1"

PROTO2_FIELDS: list[tuple[str, str, set[str], set[str]]] = [
    ("", "required int32 a = 1;", {REQUIRED_ADDED}, {REQUIRED_REMOVED}),
    ("", "optional int32 a = 1;", set(), set()),
    ("required int32 a = 1;", "optional int32 a = 1;", {LABEL}, {LABEL}),
    ("required string a = 1;", "optional string a = 1;", set(), set()),
    ("optional group G = 1 {}", "optional G g = 1; message G {}", {KIND}, {KIND}),
    (
        "optional group G = 1 { optional int32 a = 1; }",
        "optional group G = 1 { optional string a = 1; }",
        {"FIELD_SCALAR_KIND_CHANGED #/M/G/1"},
        {"FIELD_SCALAR_KIND_CHANGED #/M/G/1"},
    ),
]

EDITION_FIELDS: list[tuple[str, str, set[str], set[str]]] = [
    (
        "",
        "int32 a = 1 [features.field_presence = LEGACY_REQUIRED];",
        {REQUIRED_ADDED},
        {REQUIRED_REMOVED},
    ),
    ("M a = 1;", "M a = 1 [features.message_encoding = DELIMITED];", {KIND}, {KIND}),
    ("int32 a = 1;", "int32 a = 1 [features.field_presence = IMPLICIT];", set(), set()),
]


def reasons(writer: str, reader: str, *, of_writer: str = "", of_reader: str = "") -> set[str]:
    """Return why the reader cannot read; imports are files named `x.proto`."""
    old = FORM.parse(writer, [Named("x.proto", of_writer)] if of_writer else [])
    new = FORM.parse(reader, [Named("x.proto", of_reader)] if of_reader else [])
    return {f"{found.kind} {found.path}" for found in new.unreadable(old)}


@pytest.mark.parametrize(("one", "other", "forth", "back"), FIELDS)
def test_fields_of_proto3(one: str, other: str, forth: set[str], back: set[str]) -> None:
    old, new = (f"{PROTO3}message M {{ {body} }}" for body in (one, other))
    assert (reasons(old, new), reasons(new, old)) == (forth, back)


@pytest.mark.parametrize(("one", "other", "forth", "back"), PROTO2_FIELDS)
def test_fields_of_proto2(one: str, other: str, forth: set[str], back: set[str]) -> None:
    old, new = (f"{PROTO2}message M {{ {body} }}" for body in (one, other))
    assert (reasons(old, new), reasons(new, old)) == (forth, back)


@pytest.mark.parametrize(("one", "other", "forth", "back"), EDITION_FIELDS)
def test_fields_of_editions(one: str, other: str, forth: set[str], back: set[str]) -> None:
    old, new = (f'edition = "2023"; package p; message M {{ {body} }}' for body in (one, other))
    assert (reasons(old, new), reasons(new, old)) == (forth, back)


def test_messages_of_a_file() -> None:
    one, two = f"{PROTO3}message A {{}}", f"{PROTO3}message B {{}} message A {{}}"
    assert reasons(one, two) == set()
    assert reasons(two, one) == {"MESSAGE_REMOVED #/B"}


def test_another_package() -> None:
    assert reasons(PROTO3, 'syntax = "proto3"; package q;') == {"PACKAGE_CHANGED #/"}
    assert reasons(PROTO3, 'syntax = "proto3";') == {"PACKAGE_CHANGED #/"}


IMPORTING = f'{PROTO3}import "x.proto"; message M {{ %s a = 1; }}'
HOME = (
    'syntax = "proto3"; package %s; message Home { message Door { %s width = 1; } Door door = 1; }'
)
CHANGED = {"FIELD_SCALAR_KIND_CHANGED #/Home/Door/1", TYPE}


@pytest.mark.parametrize("kind", ["x.Home", "x.Home.Door", "map<string, x.Home.Door>"])
def test_an_imported_message_is_compared(kind: str) -> None:
    text = IMPORTING % kind
    old, new = HOME % ("x", "int32"), HOME % ("x", "string")
    assert reasons(text, text, of_writer=old, of_reader=old) == set()
    assert reasons(text, text, of_writer=old, of_reader=new) == {
        *CHANGED,
        *(["FIELD_NAMED_TYPE_CHANGED #/Home/1"] if kind == "x.Home" else []),
    }


def test_a_message_may_move_between_packages_and_files() -> None:
    old, new = HOME % ("x", "int32"), HOME % ("y", "int32")
    assert not reasons(IMPORTING % "x.Home", IMPORTING % "y.Home", of_writer=old, of_reader=new)
    own = f"{PROTO3}message M {{ Home a = 1; }} message Home {{ message Door {{ int32 width = 1; }}"
    own += " Door door = 1; }"
    assert reasons(IMPORTING % "x.Home", own, of_writer=old) == set()
    assert reasons(own, IMPORTING % "x.Home", of_reader=old) == {"MESSAGE_REMOVED #/Home"}


def test_an_imported_message_that_holds_itself_is_compared_once() -> None:
    text = IMPORTING % "x.Node"
    node = 'syntax = "proto3"; package x; message Node { Node next = 1; repeated Node all = 2; %s }'
    reader = node % "string name = 3;"
    assert reasons(text, text, of_writer=node % "int32 name = 3;", of_reader=reader) == {
        "FIELD_SCALAR_KIND_CHANGED #/Node/3",
        TYPE,
    }


def test_a_message_names_fields_and_both_kinds() -> None:
    old = FORM.parse(f"{PROTO3}message M {{ int32 size = 1; }}", [])
    new = FORM.parse(f"{PROTO3}message M {{ string length = 1; }}", [])
    assert new.unreadable(old) == [
        Incompatibility(
            "FIELD_SCALAR_KIND_CHANGED",
            "#/M/1",
            "field 1 ('size', now 'length') is a varint in the writer's schema and a string or"
            " bytes in the reader's",
        )
    ]


def test_every_reason_is_a_sentence_about_its_field() -> None:
    for one, other, _, _ in FIELDS:
        old, new = (FORM.parse(f"{PROTO3}message M {{ {body} }}", []) for body in (one, other))
        for found in new.unreadable(old):
            assert "the reader" in found.message, found
            assert "the writer" in found.message, found
