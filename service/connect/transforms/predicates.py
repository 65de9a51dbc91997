"""The predicates: HasHeaderKey, RecordIsTombstone, TopicNameMatches."""

from collections.abc import Sequence
from typing import Any, Final

from service.connect.config.keys import Key, KeyType
from service.connect.config.values import Values
from service.connect.data.records import ConnectRecord
from service.connect.transforms.api import Predicate
from service.connect.transforms.kinds import PACKAGE, PredicateKind, not_empty
from service.connect.transforms.regexes import compiled
from service.connect.transforms.routing import TOPICS_MAX, is_regex


def _has_header(values: Values) -> Predicate:
    name = values["name"]
    return lambda record: any(header.key == name for header in record.headers)


def _is_tombstone(_: Values) -> Predicate:
    return lambda record: record.value is None


def _topic_matches(values: Values) -> Predicate:
    expression = compiled(values["pattern"])
    known: dict[str, bool] = {}

    def matches(record: ConnectRecord) -> bool:
        found = known.get(record.topic)
        if found is None:
            if len(known) >= TOPICS_MAX:
                known.clear()
            found = known[record.topic] = expression.fullmatch(record.topic) is not None
        return found

    return matches


def _is_pattern(key: str, value: Any) -> str | None:
    return not_empty(key, value) or is_regex(key, value)


PREDICATES: Final[Sequence[PredicateKind]] = (
    PredicateKind(
        class_name=PACKAGE + "predicates.HasHeaderKey",
        about="True for records with a header of this name.",
        keys=(Key(name="name", type=KeyType.STRING, about="The header's name.", check=not_empty),),
        make=_has_header,
    ),
    PredicateKind(
        class_name=PACKAGE + "predicates.RecordIsTombstone",
        about="True for records whose value is null.",
        make=_is_tombstone,
    ),
    PredicateKind(
        class_name=PACKAGE + "predicates.TopicNameMatches",
        about="True for records of topics whose whole name matches.",
        keys=(
            Key(
                name="pattern",
                type=KeyType.STRING,
                about="The regular expression.",
                check=_is_pattern,
            ),
        ),
        make=_topic_matches,
    ),
)
