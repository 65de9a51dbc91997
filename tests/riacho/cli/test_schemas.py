"""`riacho schema …` against a gateway: files become versions, and pipelines get exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from riacho import AvroSerializer, Producer, SchemaRegistry
from riacho.cli.schemas.options import LevelName, schema_in, subject_and_version
from riacho.cli.schemas.rules import ModeName
from riacho.schemas.differences import SchemaChange, changes
from riacho.schemas.values import LEVELS, MODES, SchemaText
from tests.commands import riacho
from tests.gateway import GatewayProcess

AMOUNT = {"name": "amount", "type": "int"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
CUSTOMER = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
ORDER = (
    'syntax = "proto3"; package shop; import "customer.proto";'
    " message Order { int32 amount = 1; Customer by = 2; }"
)


def avro(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of schemas that commands name by their files, where they are run."""
    texts = {
        "order.avsc": avro(AMOUNT),
        "longer.avsc": avro({**AMOUNT, "type": "long"}, NOTE),
        "text.avsc": avro({**AMOUNT, "type": "string"}, {"name": "x", "type": "int"}),
        "broken.avsc": '{"type":',
        "customer.proto": CUSTOMER,
        "order.proto": ORDER,
        "order.json": '{"type": "object", "properties": {"amount": {"type": "integer"}}}',
        "strict.json": '{"type": "object", "properties": {"amount": {"type": "string"}}}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(*args: str, gateway: GatewayProcess, **rest: Any) -> str:
    return riacho("schema", *args, url=gateway.url, **rest).stdout.decode()


def document(*args: str, gateway: GatewayProcess, **rest: Any) -> Any:
    return json.loads(told(*args, "-o", "json", gateway=gateway, **rest))


@pytest.mark.usefixtures("files")
def test_files_of_three_types_are_registered_listed_shown_and_deleted(
    gateway: GatewayProcess,
) -> None:
    done = riacho("schema", "register", "shop/a:1", "order.avsc", url=gateway.url)
    assert done.stderr.decode().startswith("subject shop/a:1 has it as version 1, id ")
    riacho("schema", "register", "shop/customer", "customer.proto", url=gateway.url)
    made = document(
        *("register", "shop/order", "-", "--type", "protobuf"),
        *("-r", "customer.proto=shop/customer:latest"),
        gateway=gateway,
        stdin=ORDER.encode(),
    )
    assert made["references"] == [
        {"name": "customer.proto", "subject": "shop/customer", "version": 1}
    ]
    again = document(
        *("register", "shop/order", "order.proto", "-r", "customer.proto=shop/customer:1"),
        gateway=gateway,
    )
    assert (again["id"], again["version"]) == (made["id"], 1)
    document("register", "shop/json", "order.json", gateway=gateway)

    listed = document("list", "shop/", gateway=gateway)
    assert [(one["subject"], one["type"], one["deleted"]) for one in listed] == [
        ("shop/a:1", "AVRO", False),
        ("shop/customer", "PROTOBUF", False),
        ("shop/json", "JSON", False),
        ("shop/order", "PROTOBUF", False),
    ]
    shown = told("show", "shop/order:1", gateway=gateway)
    assert "reference customer.proto  shop/customer:1" in shown
    assert "message Order {\n" in shown
    assert told("show", "shop/a:1:latest", "--text", gateway=gateway) == (
        json.dumps(json.loads(avro(AMOUNT)), separators=(",", ":")) + "\n"
    )
    by_id = document("show", "--id", str(made["id"]), gateway=gateway)
    assert by_id["used_by"] == ["shop/order:1"]

    told("delete", "shop/order", gateway=gateway, code=2)
    told("delete", "shop/customer", "--yes", gateway=gateway, code=1)
    told("delete", "shop/order:1", "--yes", gateway=gateway)
    told("delete", "shop/order", "--yes", gateway=gateway, code=1)
    assert "shop/order" not in told("list", gateway=gateway)
    [kept] = document("list", "shop/order", "--deleted", gateway=gateway)
    assert kept["deleted"]
    assert "deleted" in told("show", "shop/order", "--deleted", gateway=gateway)
    gone = document("delete", "shop/order", "--permanent", "--yes", gateway=gateway)
    assert gone == {"subject": "shop/order", "versions": [1], "permanent": True}


@pytest.mark.usefixtures("files")
def test_a_check_is_an_exit_code_for_pipelines(gateway: GatewayProcess) -> None:
    def check(*args: str, code: int) -> str:
        return told("check", *args, gateway=gateway, code=code)

    assert check("c", "order.avsc", code=0) == "compatible: the subject has no versions yet\n"
    told("register", "c", "order.avsc", gateway=gateway)
    told("register", "c", "longer.avsc", gateway=gateway)

    assert check("c", "longer.avsc", code=0) == "compatible by BACKWARD with version 2\n"
    whole = check("c", "longer.avsc", "--all", code=0)
    assert whole == "compatible by BACKWARD_TRANSITIVE with version 1, 2\n"
    assert check("c", "order.avsc", "--version", "1", code=0).endswith("with version 1\n")
    refused = check("c", "text.avsc", code=1)
    assert refused.splitlines() == [
        "not compatible by BACKWARD, beside version 2:",
        "  TYPE_MISMATCH at /fields/0/type of the new schema: the reader's type string cannot read"
        " long",
        "  READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1 of the new schema: the field 'x' has no"
        " default, and the writer lacks it",
    ]
    found = document("check", "c", "order.avsc", "--level", "full", gateway=gateway, code=1)
    assert (found["level"], found["versions"], found["is_compatible"]) == ("FULL", [2], False)
    assert {(each["path"], each["side"]) for each in found["violations"]} == {
        ("/fields/0/type", "new")
    }

    for arguments in (
        ("c", "broken.avsc"),
        ("c", "nowhere.avsc"),
        ("c", "order.avsc", "--version", "9"),
        ("c", "order.avsc", "--version", "one"),
        ("c", "order.avsc", "--version", "1", "--all"),
        ("c", "order.avsc", "-r", "name"),
        ("c", "-"),
    ):
        assert check(*arguments, code=2) == ""
    riacho("schema", "check", "c", "order.avsc", code=2)


@pytest.mark.usefixtures("files")
def test_json_schemas_say_why_not_as_well(gateway: GatewayProcess) -> None:
    told("register", "j", "order.json", gateway=gateway)

    found = document("check", "j", "strict.json", gateway=gateway, code=1)
    [violation] = found["violations"]
    assert violation["rule"] == "TYPE_CHANGED"
    assert violation["path"]
    assert violation["side"] == "new"
    assert "errorType" not in violation["message"]


@pytest.mark.usefixtures("files")
def test_a_difference_says_what_changed_and_which_levels_hold(gateway: GatewayProcess) -> None:
    told("register", "d", "order.avsc", gateway=gateway)
    told("register", "d", "longer.avsc", gateway=gateway)

    assert told("diff", "d", "1", gateway=gateway).splitlines() == [
        '~ /fields/amount/type  "int" -> "long"',
        f"+ /fields/note  {json.dumps(NOTE)}",
        "",
        "BACKWARD  yes: version 2 reads data of 1",
        "FORWARD   no: version 1 reads data of 2",
        "  TYPE_MISMATCH at /fields/0/type of the old schema: the reader's type int cannot read"
        " long",
        "FULL      no: each reads data of the other",
    ]
    turned = document("diff", "d", "2", "1", gateway=gateway)
    assert turned["levels"] == {"BACKWARD": False, "FORWARD": True, "FULL": False}
    assert told("diff", "d", "2", "2", gateway=gateway).startswith("no change\n")


@pytest.mark.usefixtures("files")
def test_lines_of_json_are_written_by_a_schema_and_read_as_json(gateway: GatewayProcess) -> None:
    def produce(*args: str, stdin: str, code: int = 0) -> str:
        done = riacho("produce", *args, url=gateway.url, stdin=stdin.encode(), code=code)
        return done.stderr.decode()

    riacho("topic", "create", "lines", url=gateway.url)
    said = produce("lines", "--schema", "longer.avsc", stdin='{"amount": 3}\n')
    assert said.startswith("longer.avsc was registered under lines-value, id ")
    lines = '{"amount": "x"}\nno json\nnull\n{"amount": 4, "note": "hi"}\n'
    refused = produce("lines", "--schema", "longer.avsc", stdin=lines, code=1).splitlines()
    assert refused[0].startswith("riacho: line 1: the value does not fit: /amount: it should be a")
    assert refused[1].startswith("riacho: line 2: the value is not JSON: ")
    assert refused[2] == "2 records written, 2 failed"
    told("register", "lines-customer", "customer.proto", gateway=gateway)
    options = ("-k", "|", "--key-schema", "order.json", "--schema-subject", "lines-customer:1")
    produce("lines", *options, stdin='{"amount": 1}|{"name": "ana"}\n')
    produce("lines", stdin="plain\n\0\0\0\0\0\n\0\1\1\1\1x\n")

    read = riacho("consume", "lines", "-e", url=gateway.url).stdout
    assert read.splitlines() == [
        b'{"amount":3,"note":null}',
        b"",
        b'{"amount":4,"note":{"string":"hi"}}',
        b'{"name":"ana"}',
        b"plain",
        b"\0\0\0\0\0",
        b"\0\1\1\1\1x",
    ]
    documents = [
        json.loads(line)
        for line in riacho("consume", "lines", "-e", "-J", url=gateway.url).stdout.splitlines()
    ]
    [value_id] = {document("show", "lines-value", gateway=gateway)["id"]}
    assert (documents[0]["value"], documents[0]["value_schema_id"]) == (
        {"amount": 3, "note": None},
        value_id,
    )
    assert "value_schema_id" not in documents[1]
    assert documents[3]["key"] == {"amount": 1}
    assert documents[3]["key_schema_id"] == document("show", "lines-key", gateway=gateway)["id"]
    assert documents[4]["value"] == "plain"
    with SchemaRegistry(gateway.url) as registry, Producer(gateway.url) as producer:
        by_guid = AvroSerializer(registry, id_in="header")("lines", {"amount": 5, "note": None})
        producer.send("lines", by_guid.data, headers=by_guid.headers).result()
    last = json.loads(riacho("consume", "lines", "-o", "-1", "-e", "-J", url=gateway.url).stdout)
    assert (last["value"]["amount"], last["value_schema_id"]) == (5, value_id)
    raw = riacho("consume", "lines", "-e", "--raw", "-n", "1", url=gateway.url).stdout
    assert raw == b"\0" + value_id.to_bytes(4, "big") + b"\x06\0\n"
    grouped = riacho("consume", "lines", "-e", "-g", "lines", "-f", "%k %v %s\\n", url=gateway.url)
    assert b'{"amount":1} {"name":"ana"} 14\n' in grouped.stdout

    for options in (("--schema", "order.avsc", "--schema-id", "1"), ("--key-schema-id", "1")):
        produce("lines", *options, stdin="", code=2)
    produce("lines", "--schema-subject", "nobody", stdin="", code=1)


def test_levels_and_modes_are_shown_set_and_unset(gateway: GatewayProcess) -> None:
    assert told("level", gateway=gateway) == "BACKWARD\n"
    assert told("level", "l", "full", gateway=gateway) == "FULL\n"
    assert told("level", "--default", "NONE", gateway=gateway) == "NONE\n"
    assert told("level", "l", gateway=gateway) == "FULL\n"
    assert told("level", "l", "--unset", gateway=gateway) == "NONE\n"
    assert told("level", "--unset", gateway=gateway) == "BACKWARD\n"
    assert document("mode", "l", "READONLY", gateway=gateway) == {"mode": "READONLY"}
    assert document("mode", "l", "--unset", gateway=gateway) == {"mode": "READWRITE"}
    told("level", "l", "--default", "FULL", gateway=gateway, code=2)
    assert (tuple(LevelName), tuple(ModeName)) == (LEVELS, MODES)


def test_a_subject_may_have_a_context_and_a_version() -> None:
    for text, expected in {
        "orders": ("orders", None),
        "orders:2": ("orders", 2),
        "orders:latest": ("orders", "latest"),
        "orders:1:": ("orders:1", None),
        "orders:1:2": ("orders:1", 2),
        ":.staging:orders": (":.staging:orders", None),
        ":.staging:5": (":.staging:5", None),
        ":.staging:orders:5": (":.staging:orders", 5),
    }.items():
        assert subject_and_version(text) == expected


def test_what_has_a_name_is_compared_by_it(files: Path) -> None:
    first, second = {"name": "a", "type": "int"}, {"name": "b", "type": "int"}
    swapped = changes(SchemaText(text=avro(first, second)), SchemaText(text=avro(second, first)))
    assert swapped == [SchemaChange("moved", "/fields", "a, b", "b, a")]
    [other] = changes(
        SchemaText(text='{"a": [1, 2]}', kind="JSON"), SchemaText(text='{"a": [1]}', kind="JSON")
    )
    assert other == SchemaChange("removed", "/a/1", "2")
    proto = schema_in(str(files / "customer.proto"), None, [])
    told = changes(proto, SchemaText(text=CUSTOMER.replace("string", "bytes"), kind="PROTOBUF"))
    assert [each.before[0] for each in told] == ["-", "+"]
