"""Topic configuration: Kafka's names, and one table with the meaning and values of each.

Values arrive as JSON (numbers, strings, booleans) or as text from a command line, are checked
here once, and are stored as the text Kafka would show. A key that is not in the table is
refused, because a setting that is silently ignored is a broken promise. Those that Kafka knows and
that mean nothing here are in a table of their own (`storage/topics/kept.py`).
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from storage.errors import InvalidConfig
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.slices import Codec
from storage.topics.kept import KEPT
from storage.topics.schema_rules import SCHEMA_SETTINGS, SchemaRule, rules_of
from storage.topics.setting import INT64_MAX, Setting, choice, integer, ratio

LANE_PARTITIONS_MAX: Final = 64

FILE: Final = "file:"
AWS_KMS: Final = "aws-kms:"
_ARN: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:(key|alias)/[A-Za-z0-9/_-]+")


def _kek(text: str) -> str:
    is_file = text.startswith(FILE) and len(text) > len(FILE) and text.isprintable()
    is_kms = text.startswith(AWS_KMS) and _ARN.fullmatch(text.removeprefix(AWS_KMS)) is not None
    if text and not is_file and not is_kms:
        raise ValueError(f"must be {FILE}<path> or {AWS_KMS}<arn of a key>, not {text!r}")
    return text


def _cleanup_policy(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not parts or len(set(parts)) != len(parts) or not set(parts) <= {"delete", "compact"}:
        raise ValueError(f"must be delete, compact or compact,delete, not {text!r}")
    return ",".join(sorted(parts))


_CODECS: Final[dict[str, Codec]] = {
    "uncompressed": "none",
    "gzip": "zstd",
    "snappy": "lz4",
    "lz4": "lz4",
    "zstd": "zstd",
    "none": "none",
}
"""By the value of `compression.type`: the codec of Arrow slices, which know only two. The last is
the name that `uncompressed` had."""

SETTINGS: Final[dict[str, Setting]] = {
    "cleanup.policy": Setting("delete", _cleanup_policy, "what happens to old records"),
    "compression.type": Setting(
        "producer", choice("producer", *_CODECS), "codec of new slices; producer: as they came"
    ),
    "delete.retention.ms": Setting("86400000", integer(0), "how long tombstones live"),
    "encryption": Setting(
        "none", choice("none", "topic"), "topic: stored records are sealed", fixed=True
    ),
    "encryption.kek": Setting(
        "", _kek, "key that wraps the data keys: file:<path>, aws-kms:<arn>", fixed=True
    ),
    "lane.partitions": Setting(
        "64", integer(1, LANE_PARTITIONS_MAX), "partitions that commit together", fixed=True
    ),
    "max.compaction.lag.ms": Setting(str(INT64_MAX), integer(1), "compact at the latest then"),
    "max.message.bytes": Setting("1048588", integer(0, 2**31 - 1), "largest record"),
    "message.timestamp.type": Setting(
        "CreateTime", choice("CreateTime", "LogAppendTime"), "whose clock stamps records"
    ),
    "min.cleanable.dirty.ratio": Setting("0.5", ratio, "share of new records worth compacting"),
    "min.compaction.lag.ms": Setting("0", integer(0), "records younger stay uncompacted"),
    "min.insync.replicas": Setting("1", integer(1, 32), "zones that acks=all demands"),
    "replica.lag.time.max.ms": Setting(
        "10000", integer(100, 600_000), "a zone that takes longer is not in sync any more"
    ),
    "retention.bytes": Setting("-1", integer(-1), "size of a partition; -1 is unlimited"),
    "retention.ms": Setting("604800000", integer(-1), "age of records; -1 is unlimited"),
    "riacho.kafka.slices": Setting(
        "raw", choice("raw", "arrow"), "what is stored of batches that come by Kafka's protocol"
    ),
    "segment.bytes": Setting("1073741824", integer(1024 * 1024), "size of compacted segments"),
    "segment.ms": Setting("604800000", integer(1), "age at which slices are compacted"),
    "table.columns": Setting(
        "false", choice("false", "true"), "whether compacted segments get typed columns"
    ),
    "unclean.leader.election.enable": Setting(
        "false", choice("false", "true"), "whether a zone that misses something may lead"
    ),
    **SCHEMA_SETTINGS,
    **KEPT,
}


def parse_config(given: Mapping[str, object]) -> dict[str, str]:
    """Return `given` as checked text, or raise `InvalidConfig` naming the key at fault."""
    return {name: _parse_one(name, value) for name, value in given.items()}


def _parse_one(name: str, value: object) -> str:
    setting = SETTINGS.get(name)
    if setting is None:
        near = difflib.get_close_matches(name, SETTINGS, n=1)
        known = ", ".join(each for each in SETTINGS if each not in KEPT)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {known}"
        raise InvalidConfig(f"config: there is no setting {name!r}{hint}")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidConfig(f"config: {name} must be text or a number")
    try:
        return setting.parse(str(value))
    except ValueError as error:
        raise InvalidConfig(f"config: {name} {error}") from None


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic: what was given, and defaults for the rest."""

    given: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.given.get(name, SETTINGS[name].default)

    def check(self) -> None:
        """Raise `ValueError` unless all given values are valid; unknown settings are ignored."""
        for name, text in self.given.items():
            if name in SETTINGS:
                SETTINGS[name].parse(text)

    def check_encryption(self) -> None:
        """Raise `InvalidConfig` unless the two settings of encryption agree."""
        if self.is_encrypted and not self.kek:
            raise InvalidConfig(
                f"config: encryption=topic needs encryption.kek, {FILE}<path> or {AWS_KMS}<arn>"
            )
        if self.kek and not self.is_encrypted:
            raise InvalidConfig("config: encryption.kek has no effect without encryption=topic")

    def check_columns(self) -> None:
        """Raise `InvalidConfig` if typed columns would show what encryption seals."""
        if self.has_columns and self.is_encrypted:
            raise InvalidConfig(
                "config: table.columns=true does not go with encryption=topic: nothing but this"
                " service can read columns of a sealed segment"
            )

    def all(self) -> dict[str, str]:
        return {name: self[name] for name in SETTINGS}

    @property
    def codec(self) -> Codec:
        """The codec of new Arrow slices."""
        return _CODECS.get(self["compression.type"], "lz4")

    @property
    def kafka_codec(self) -> Compression | None:
        """The codec of batches that are kept as they came; None: that of their producer."""
        name = self["compression.type"]
        if name == "producer":
            return None
        return "none" if name not in COMPRESSIONS else name

    @property
    def keeps_kafka_batches(self) -> bool:
        """Whether batches that come by Kafka's protocol are stored as they came."""
        return self["riacho.kafka.slices"] == "raw"

    @property
    def record_bytes_max(self) -> int:
        return int(self["max.message.bytes"])

    @property
    def stamps_appends(self) -> bool:
        return self["message.timestamp.type"] == "LogAppendTime"

    @property
    def in_sync_min(self) -> int:
        return int(self["min.insync.replicas"])

    @property
    def lag_s_max(self) -> float:
        return int(self["replica.lag.time.max.ms"]) / 1000

    @property
    def is_encrypted(self) -> bool:
        """Whether stored records are sealed."""
        return self["encryption"] == "topic"

    @property
    def kek(self) -> str:
        """The name of the key that wraps the topic's data keys."""
        return self["encryption.kek"]

    @property
    def has_columns(self) -> bool:
        """Whether compacted segments get typed columns of keys and values that have schemas."""
        return self["table.columns"] == "true"

    @property
    def may_elect_unclean(self) -> bool:
        return self["unclean.leader.election.enable"] == "true"

    @property
    def schema_rules(self) -> tuple[SchemaRule, ...]:
        """Which schemas keys and values must have; `Topic.schema_rules` has them, once for all."""
        return rules_of(self.__getitem__)

    @property
    def is_compacted(self) -> bool:
        return "compact" in self["cleanup.policy"]

    @property
    def is_deleted(self) -> bool:
        """Whether old records are deleted, by age and by size."""
        return "delete" in self["cleanup.policy"]

    @property
    def retention_ms(self) -> int | None:
        """Maximum age of records; None: unlimited."""
        age_ms = int(self["retention.ms"])
        return None if age_ms < 0 else age_ms

    @property
    def retention_bytes(self) -> int | None:
        size_bytes = int(self["retention.bytes"])
        return None if size_bytes < 0 else size_bytes

    @property
    def segment_bytes(self) -> int:
        return int(self["segment.bytes"])

    @property
    def segment_ms(self) -> int:
        return int(self["segment.ms"])

    @property
    def delete_retention_ms(self) -> int:
        return int(self["delete.retention.ms"])

    @property
    def compaction_lag_ms(self) -> tuple[int, int]:
        """Minimum age of records to be compacted, and the age at which they must be compacted."""
        return int(self["min.compaction.lag.ms"]), int(self["max.compaction.lag.ms"])

    @property
    def dirty_ratio_min(self) -> float:
        return float(self["min.cleanable.dirty.ratio"])
