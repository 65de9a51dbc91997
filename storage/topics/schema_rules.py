"""Which schemas a topic asks for: of its keys and of its values.

    confluent.value.schema.validation=true     the id that a value carries must be registered under
                                               the subject of confluent.value.subject.name.strategy
    value.schema.validation=id                 the same
    value.schema.validation=full               and the data must fit the schema; data without an id,
                                               like plain JSON, the latest schema of the subject
    value.schema.subject=orders                this subject, whatever the strategy says

Names and values of Confluent's settings are theirs, so that programs made for it find them.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from storage.topics.setting import Setting, choice

SUBJECT_BYTES_MAX: Final = 4096

Part = Literal["key", "value"]
PARTS: Final[tuple[Part, ...]] = ("key", "value")


class Strategy(StrEnum):
    """Which subject a record's schema belongs to."""

    TOPIC = "io.confluent.kafka.serializers.subject.TopicNameStrategy"
    RECORD = "io.confluent.kafka.serializers.subject.RecordNameStrategy"
    TOPIC_RECORD = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRule:
    """What a topic asks of all its keys, or of all its values."""

    part: Part
    checks_data: bool
    strategy: Strategy
    subject: str
    """The only subject; empty: the strategy says which."""

    @property
    def header(self) -> str:
        """The header that may carry the id of the schema."""
        return f"__{self.part}_schema_id"


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


def _subject(text: str) -> str:
    if (
        _CONTROL.search(text)
        or text in _RESERVED
        or len(text.encode(errors="replace")) > SUBJECT_BYTES_MAX
    ):
        raise ValueError(f"must be the name of a subject, not {text!r:.100}")
    return text


def _settings(part: Part) -> dict[str, Setting]:
    return {
        f"confluent.{part}.schema.validation": Setting(
            "false", choice("false", "true"), f"whether the schema id of a {part} is checked"
        ),
        f"confluent.{part}.subject.name.strategy": Setting(
            Strategy.TOPIC, choice(*Strategy), f"which subject the schema of a {part} belongs to"
        ),
        f"{part}.schema.subject": Setting(
            "", _subject, f"subject of all schemas of a {part}; empty: the strategy says which"
        ),
        f"{part}.schema.validation": Setting(
            "none", choice("none", "id", "full"), f"what is checked of a {part} and its schema"
        ),
    }


SCHEMA_SETTINGS: Final = {name: each for part in PARTS for name, each in _settings(part).items()}


def rules_of(setting: Callable[[str], str]) -> tuple[SchemaRule, ...]:
    """Return what a topic with these settings asks for; nothing of what is not checked."""
    return tuple(
        SchemaRule(
            part=part,
            checks_data=setting(f"{part}.schema.validation") == "full",
            strategy=Strategy(setting(f"confluent.{part}.subject.name.strategy")),
            subject=setting(f"{part}.schema.subject"),
        )
        for part in PARTS
        if setting(f"{part}.schema.validation") != "none"
        or setting(f"confluent.{part}.schema.validation") == "true"
    )
