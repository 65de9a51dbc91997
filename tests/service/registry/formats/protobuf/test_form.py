"""What is accepted as a Protobuf schema, what is refused, and what the refusal says."""

import base64
from collections.abc import Sequence

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from service.registry.formats.form import form_of
from service.registry.formats.protobuf.form import FORM
from storage.schemas.source import InvalidSchema, Named, SchemaType
from tests.service.registry.formats.protobuf.meaning import meaning

HEAD = 'syntax = "proto3";\n'


def refusal(text: str, references: Sequence[Named] = ()) -> str:
    with pytest.raises(InvalidSchema) as refused:
        FORM.parse(text, references)
    return str(refused.value)


def encoded(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def descriptor(text: str, references: Sequence[Named] = ()) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(
        base64.b64decode(FORM.parse(text, references).serialized())
    )


def test_protobuf_is_the_form_of_its_type() -> None:
    assert form_of(SchemaType.PROTOBUF) is FORM


def test_spaces_comments_and_a_syntax_that_is_not_named_make_no_difference() -> None:
    spaced = "/* a */ message\n M { // b\n optional int32 a=1 ; };"
    assert FORM.parse(spaced, []).canonical == (
        'syntax = "proto2";\n\nmessage M {\n  optional int32 a = 1;\n}\n'
    )


def test_types_are_named_from_the_root() -> None:
    text = FORM.parse(f"{HEAD}package a.b; message M {{ M m = 1; b.M n = 2; }}", []).canonical
    assert ".a.b.M m = 1;" in text
    assert ".a.b.M n = 2;" in text


def test_a_custom_option_has_a_dot_in_front_only_where_its_name_means_something_else() -> None:
    options = Named(
        "acme/options.proto",
        f'{HEAD}package acme; import "google/protobuf/descriptor.proto";'
        "extend google.protobuf.MessageOptions { string owner = 50000; }",
    )
    body = 'import "acme/options.proto"; message M { option (.acme.owner) = "x"; }'
    plain = FORM.parse(f"{HEAD}package shop; {body}", [options])
    assert 'option (acme.owner) = "x";' in plain.canonical
    hidden = FORM.parse(f"{HEAD}package shop.acme; {body}", [options])
    assert 'option (.acme.owner) = "x";' in hidden.canonical
    for schema in (plain, hidden):
        assert meaning(FORM.parse(schema.canonical, [options])) == meaning(schema)


def test_the_same_descriptor_and_text_have_the_same_canonical_text() -> None:
    text = f"{HEAD}package p; message M {{ map<string, int32> m = 1; oneof o {{ bool b = 2; }} }}"
    assert FORM.parse(encoded(descriptor(text)), []).canonical == FORM.parse(text, []).canonical


def test_base64_may_have_line_breaks() -> None:
    text = encoded(descriptor(f"{HEAD}message M {{}}"))
    wrapped = "\n".join(text[at : at + 20] for at in range(0, len(text), 20))
    assert FORM.parse(wrapped, []).canonical == FORM.parse(text, []).canonical


def test_a_descriptor_without_names_in_json_is_given_the_usual_ones() -> None:
    """Those that protoc puts into generated code have none."""
    file = descriptor(f"{HEAD}message M {{ int32 a_b = 1; }}")
    file.message_type[0].field[0].ClearField("json_name")
    assert FORM.parse(encoded(file), []).serialized() == encoded(
        descriptor(f"{HEAD}message M {{ int32 a_b = 1; }}")
    )


def test_the_serialized_descriptor_is_called_default() -> None:
    assert descriptor(f"{HEAD}message M {{}}").name == "default"


def test_imports_are_resolved_by_the_references() -> None:
    inner = Named("b/inner.proto", f"{HEAD}package b; message In {{ int32 a = 1; }}")
    outer = Named(
        "outer.proto",
        f'{HEAD}package o; import "b/inner.proto"; message Out {{ b.In i = 1; }}',
    )
    text = f'{HEAD}import "outer.proto"; message M {{ o.Out out = 1; }}'
    schema = FORM.parse(text, [inner, outer])
    assert [file.name for file in schema.files[:-1]] == ["b/inner.proto", "outer.proto"]
    assert FORM.parse(schema.serialized(), [inner, outer]).canonical == schema.canonical
    assert "no reference is named 'b/inner.proto'" in refusal(text, [outer])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("google/protobuf/timestamp.proto", "google.protobuf.Timestamp"),
        ("google/protobuf/struct.proto", "google.protobuf.Value"),
        ("google/protobuf/wrappers.proto", "google.protobuf.Int64Value"),
        ("google/protobuf/any.proto", "google.protobuf.Any"),
        ("google/type/date.proto", "google.type.Date"),
        ("google/type/datetime.proto", "google.type.DateTime"),
        ("confluent/meta.proto", "confluent.Meta"),
        ("confluent/type/decimal.proto", "confluent.type.Decimal"),
        ("confluent/type/variant.proto", "confluent.type.Variant"),
    ],
)
def test_well_known_imports_need_no_reference(path: str, name: str) -> None:
    text = FORM.parse(f'{HEAD}import "{path}"; message M {{ {name} a = 1; }}', []).canonical
    assert f".{name} a = 1;" in text


def test_messages_keep_their_places_when_fields_are_put_in_order() -> None:
    """Serialized records say by place which message they hold."""
    body = """message Outer {
        map<string, int32> z = 9; message A {} map<string, bool> b = 2; message C {} int32 a = 1;
    }"""
    schema = FORM.parse(f"{HEAD}{body}", [])
    normal = FORM.parse(schema.normalized, [])
    for form in (schema, FORM.parse(schema.serialized(), []), normal):
        nested = form.files[-1].message_type[0].nested_type
        assert [(at, one.name) for at, one in enumerate(nested) if not one.options.map_entry] == [
            (1, "A"),
            (3, "C"),
        ]
    assert [field.number for field in normal.files[-1].message_type[0].field] == [1, 2, 9]


def test_normalized_texts_of_schemas_in_another_order_are_equal() -> None:
    one = f"""{HEAD}import "google/type/date.proto"; import "google/type/money.proto";
    message M {{ int32 a = 1; oneof o {{ bool x = 2; bool y = 3; }} google.type.Date d = 4;
    google.type.Money m = 5; map<string, int32> p = 6; map<string, int32> q = 7;
    optional int32 r = 8; optional int32 s = 9; reserved 20, 30 to 40; reserved "u", "v"; }}
    enum E {{ Z = 0; A = 1; B = 2; }}"""
    other = f"""{HEAD}import "google/type/money.proto"; import "google/type/date.proto";
    message M {{ reserved "v"; reserved "u"; reserved 30 to 40; reserved 20; optional int32 s = 9;
    map<string, int32> q = 7; map<string, int32> p = 6; google.type.Money m = 5;
    google.type.Date d = 4; oneof o {{ bool y = 3; bool x = 2; }} int32 a = 1;
    optional int32 r = 8; }}
    enum E {{ Z = 0; B = 2; A = 1; }}"""
    assert FORM.parse(one, []).canonical != FORM.parse(other, []).canonical
    assert FORM.parse(one, []).normalized == FORM.parse(other, []).normalized


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("message M {", "line 1, column 12: Reached end of input"),
        (
            f"{HEAD}message M {{ int32 a = 0; }}",
            "line 2, column 23: Field numbers must be positive",
        ),
        (f"{HEAD}message M {{ X a = 1; }}", 'line 2, column 13: "X" is not defined.'),
        (
            f'{HEAD}import "x.proto"; message M {{}}',
            "line 2, column 1: no reference is named 'x.proto': add one, with its subject and",
        ),
        (f'{HEAD}import "../x.proto";', "'../x.proto'"),
        (f'{HEAD}import "/etc/hostname";', "'/etc/hostname'"),
        (f'{HEAD}import "google/protobuf/unknown.proto";', "'google/protobuf/unknown.proto'"),
        ('syntax = "proto4";', 'line 1, column 10: Unrecognized syntax identifier "proto4"'),
        (f"{HEAD}enum E {{ A = 1; }}", "The first enum value must be zero"),
        ("\x00", "line 1, column 1: Invalid control characters"),
        (f"{HEAD}// \ud800", "is not Unicode text at position 22: remove the lone surrogate"),
        ("bm90IGEgZGVzY3JpcHRvcg==", "neither .proto text nor base64"),
        ("abc", "neither .proto text nor base64"),
        ("{}", "line 1, column 1: Expected top-level statement"),
        ('{"type": "record"}', "line 1, column 1: Expected top-level statement"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_mistake_in_a_reference_names_the_reference() -> None:
    assert "in the reference 'x.proto', line 1, column 1: Expected" in refusal(
        f'{HEAD}import "x.proto";', [Named("x.proto", "nonsense")]
    )


@pytest.mark.parametrize(
    "name",
    ["../x.proto", "/x.proto", "a//x.proto", "./x.proto", "a\\x.proto", "a\nx", "", "x" * 999],
)
def test_a_reference_that_is_no_path_of_an_import_is_refused(name: str) -> None:
    assert "not the path of an import" in refusal(HEAD, [Named(name, HEAD)])


def test_a_reference_that_is_a_folder_of_another_is_refused() -> None:
    assert "cannot be placed beside" in refusal(HEAD, [Named("a", HEAD), Named("a/b", HEAD)])


def test_imports_that_go_in_a_circle_are_refused() -> None:
    circle = [
        Named("a.proto", f'{HEAD}import "b.proto";'),
        Named("b.proto", f'{HEAD}import "a.proto";'),
    ]
    assert "recursively imports itself" in refusal(f'{HEAD}import "a.proto";', circle)
    assert "recursively imports itself" in refusal(f'{HEAD}import "registered/schema.proto";')


def test_a_reference_may_have_the_name_that_the_schema_is_given() -> None:
    named = Named("registered/schema.proto", f"{HEAD}package other; message M {{}}")
    text = f'{HEAD}import "registered/schema.proto"; message M {{ other.M a = 1; }}'
    assert ".other.M a = 1;" in FORM.parse(text, [named]).canonical


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda file: setattr(file, "package", "a; message X {}"), id="package"),
        pytest.param(
            lambda file: setattr(file.message_type[0], "name", "A {} message B"), id="name"
        ),
        pytest.param(lambda file: file.dependency.append('x"; import "y'), id="import"),
        pytest.param(
            lambda file: setattr(file.message_type[0].field[0], "default_value", "1"), id="default"
        ),
        pytest.param(
            lambda file: setattr(
                file.message_type[0].field[0], "type", FieldDescriptorProto.TYPE_GROUP
            ),
            id="group",
        ),
        pytest.param(lambda file: file.options.MergeFromString(b"\xa2\xf3\x18\x01x"), id="unknown"),
        pytest.param(lambda file: setattr(file, "syntax", "proto9"), id="syntax"),
    ],
)
def test_a_descriptor_that_no_text_can_say_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    file = descriptor(f"{HEAD}message M {{ int32 a = 1; }}")
    change(file)
    assert refusal(encoded(file))


def test_entries_of_maps_in_strings_and_comments_are_left_alone() -> None:
    text = f"""{HEAD}// message M {{ option map_entry = true;
    message M {{ string a = 1 [json_name = "{{ option map_entry = true; }}"]; /* {{ */ }}"""
    schema = FORM.parse(text, [])
    assert FORM.parse(schema.canonical, []).canonical == schema.canonical
    assert "option map_entry = true; }" in schema.canonical


@pytest.mark.parametrize(
    "body",
    [
        "message AEntry { option map_entry = true; string key = 1; int32 value = 2; }",
        "AEntry a = 1;"
        " message AEntry { option map_entry = true; string key = 1; int32 value = 2; }",
        "repeated BEntry a = 1;"
        " message BEntry { option map_entry = true; string key = 1; int32 value = 2; }",
        "repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; }",
        "repeated AEntry a = 1;"
        " message AEntry { option map_entry = true; double key = 1; int32 value = 2; }",
        "repeated AEntry a = 1; message AEntry { option map_entry = true;"
        " option deprecated = true; string key = 1; int32 value = 2; int32 more = 3; }",
        "option map_entry = true; string key = 1; int32 value = 2;",
    ],
)
def test_an_entry_that_no_map_has_is_refused(body: str) -> None:
    assert "write map<key, value> in the field" in refusal(f"{HEAD}message M {{ {body} }}")
