"""Under which subject the schema of a value is registered: Confluent's three strategies."""

import json
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from riacho.schemas.values import SchemaText
from storage.errors import InvalidConfig

SubjectStrategy: TypeAlias = (
    Literal["topic_name", "record_name", "topic_record_name"] | Callable[[str, bool, str], str]
)
"""`topic_name`: orders-value, orders-key. `record_name`: shop.Order. `topic_record_name`:
orders-shop.Order. Or a function of the topic, whether it is a key, and the name of the record."""


def _topic_name(topic: str, is_key: bool, _: str) -> str:
    return f"{topic}-{'key' if is_key else 'value'}"


def _record_name(_: str, __: bool, record: str) -> str:
    return _named(record)


def _topic_record_name(topic: str, _: bool, record: str) -> str:
    return f"{topic}-{_named(record)}"


_STRATEGIES: Final[dict[str, Callable[[str, bool, str], str]]] = {
    "topic_name": _topic_name,
    "record_name": _record_name,
    "topic_record_name": _topic_record_name,
}


def strategy_of(strategy: SubjectStrategy) -> Callable[[str, bool, str], str]:
    """Return the function of a strategy."""
    if callable(strategy):
        return strategy
    if strategy not in _STRATEGIES:
        raise InvalidConfig(f"subject_strategy is a function or one of {', '.join(_STRATEGIES)}")
    return _STRATEGIES[strategy]


def record_name(schema: SchemaText) -> str:
    """Return what a schema calls its values: Avro's full name, a title; empty: nothing.

    Raises `InvalidConfig` if it is no JSON.
    """
    if schema.kind == "PROTOBUF":
        return ""  # A file has many messages; the message itself says which it is.
    try:
        document = json.loads(schema.text)
    except ValueError as error:
        raise InvalidConfig(f"the schema is not JSON: {error}") from None
    if not isinstance(document, dict):
        return document if isinstance(document, str) and schema.kind == "AVRO" else ""
    if schema.kind == "JSON":
        return str(document.get("title", ""))
    return _full_name(document)


def _full_name(document: dict[str, Any]) -> str:
    name = str(document.get("name") or document.get("type", ""))
    namespace = document.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _named(record: str) -> str:
    if not record:
        raise InvalidConfig(
            "the schema has no name for this subject_strategy: an Avro record has one, a JSON"
            " Schema by its title"
        )
    return record
