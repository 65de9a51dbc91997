"""Our transforms against Kafka's own, on generated records with and without schemas."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from service.connect.config.values import Values
from service.connect.converters.json.converter import JsonConverter
from service.connect.data.errors import ConfigFault, DataFault
from service.connect.data.records import ConnectRecord, FromLog
from service.connect.transforms.casting.numbers import as_float32
from service.connect.transforms.choice import predicate_kind, transform_kind
from service.connect.transforms.kinds import PACKAGE
from tests.kafka_programs.programs import Tools, kafka_jars, run
from tests.kafka_programs.transforms.cases import CONFIGS, Case, cases_of

pytestmark = pytest.mark.slow

PROGRAM: Final = str(Path(__file__).parents[1] / "java" / "Transforms.java")
CASES_EACH: Final = 200
CONVERTER: Final = JsonConverter(with_defaults=False)


def envelope(schema: Any, value: Any) -> Any:
    stored = CONVERTER.to_bytes("t", schema, value)
    return None if stored is None else json.loads(stored)


def said(record: ConnectRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "key": envelope(record.key_schema, record.key),
        "value": envelope(record.value_schema, record.value),
        "headers": [[each.key, envelope(each.schema, each.value)] for each in record.headers],
    }


def question(case: Case) -> dict[str, Any]:
    assert isinstance(case.record.origin, FromLog)
    return {
        "type": PACKAGE + case.kind,
        "config": dict(case.config),
        **said(case.record),
        "partition": case.record.partition,
        "timestamp": case.record.timestamp_ms,
        "offset": case.record.origin.offset,
    }


def ours(case: Case) -> Mapping[str, Any]:
    """Return what ours makes of a case, in the words of the Java program."""
    try:
        if (found := predicate_kind(PACKAGE + case.kind)) is not None:
            return {"holds": found.make(Values(found.keys, case.config))(case.record)}
        kind = transform_kind(PACKAGE + case.kind)
        assert kind is not None, case.kind
        changed = kind.make(Values(kind.keys, case.config))(case.record)
    except ConfigFault as fault:
        return {"error": "ConfigException", "message": str(fault)}
    except DataFault as fault:
        return {"error": "DataException", "message": str(fault)}
    if changed is None:
        return {"dropped": True}
    try:
        return said(changed)
    except DataFault as fault:
        return {"unwritable": "DataException", "message": str(fault)}


REFUSED_HERE: Final = re.compile(r"of the years 1 to|one of 1 to|value \(.*-.*\) does not match")
"""What ours refuses of times and Kafka does not: far years, and a minus in the midst of digits."""


def agree(kind: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    is_fault = [bool({"error", "unwritable"} & told.keys()) for told in (mine, theirs)]
    if all(is_fault):
        return True
    if "unwritable" in theirs and kind.startswith(("Cast", "MaskField")):
        # Kafka makes a value that its own schema does not allow; see the modules.
        return True
    if theirs.get("message") == "Cannot list fields on non-struct type":
        return kind.startswith("SetSchemaMetadata")
    if kind.startswith("Timestamp") and REFUSED_HERE.search(mine.get("message", "")):
        return True
    return equal(mine, theirs)


def equal(mine: Any, theirs: Any) -> bool:
    """Return whether both are the same; Java 17 writes more digits of a float than it needs."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return mine.keys() == theirs.keys() and all(equal(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(equal, mine, theirs))
    if isinstance(mine, float) and isinstance(theirs, float):
        return mine == theirs or as_float32(mine) == as_float32(theirs)
    return type(mine) is type(theirs) and bool(mine == theirs)


@pytest.fixture(scope="module")
def answers() -> Mapping[str, Sequence[tuple[Case, Mapping[str, Any]]]]:
    cases = {name: cases_of(name, CASES_EACH) for name in CONFIGS}
    asked = "\n".join(json.dumps(question(case)) for each in cases.values() for case in each)
    program = Tools(kafka_jars(), "").command(PROGRAM)
    told = iter(run(program, told=asked).splitlines())
    return {name: [(case, json.loads(next(told))) for case in each] for name, each in cases.items()}


@pytest.mark.parametrize("name", CONFIGS)
def test_it_does_what_kafka_does(
    answers: Mapping[str, Sequence[tuple[Case, Mapping[str, Any]]]], name: str
) -> None:
    different = [
        (case, mine, theirs)
        for case, theirs in answers[name]
        if not agree(case.kind, mine := ours(case), theirs)
    ]
    succeeded = sum("error" not in theirs for _, theirs in answers[name])

    shown = "\n".join(
        f"{case.kind} {dict(case.config)}\n  of {json.dumps(said(case.record))}\n"
        f"  ours   {json.dumps(mine)}\n  theirs {json.dumps(theirs)}"
        for case, mine, theirs in different[:3]
    )
    assert not different, f"{len(different)} of {len(answers[name])} differ:\n{shown}"
    assert succeeded >= CASES_EACH // 5, "too few of them mean anything"
