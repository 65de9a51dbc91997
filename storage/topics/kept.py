"""Topic settings that Kafka knows and that have no effect here, with Kafka's types and defaults.

They are about files of a broker's disk, its replication and its tiered storage. Programs made for
Kafka set them when they create topics, and compare what they read with what they have set, so they
are checked, stored and shown.
"""

import re
from typing import Final

from storage.topics.setting import INT32_MAX, INT64_MAX, Parse, Setting, choice, integer

_THROTTLED: Final = re.compile(r"\*|none|([0-9]{1,10}:[0-9]{1,10}(,[0-9]{1,10}:[0-9]{1,10})*)?")


def _throttled(text: str) -> str:
    if _THROTTLED.fullmatch(text) is None:
        raise ValueError(f"must be *, or partition:broker and more with commas, not {text!r}")
    return text


_BOOLEAN: Final = choice("false", "true")


def _kept(default: str, parse: Parse, about: str) -> Setting:
    return Setting(default, parse, about, has_effect=False)


KEPT: Final[dict[str, Setting]] = {
    "compression.gzip.level": _kept("-1", integer(-1, 9), "level of gzip"),
    "compression.lz4.level": _kept("9", integer(1, 17), "level of lz4"),
    "compression.zstd.level": _kept("3", integer(-131_072, 22), "level of zstd"),
    "file.delete.delay.ms": _kept("60000", integer(0), "wait before files are deleted"),
    "flush.messages": _kept(str(INT64_MAX), integer(1), "records between flushes of a disk"),
    "flush.ms": _kept(str(INT64_MAX), integer(0), "time between flushes of a disk"),
    "follower.replication.throttled.replicas": _kept("", _throttled, "replicas slowed down"),
    "index.interval.bytes": _kept("4096", integer(0, INT32_MAX), "bytes between index entries"),
    "leader.replication.throttled.replicas": _kept("", _throttled, "replicas slowed down"),
    "local.retention.bytes": _kept("-2", integer(-2), "size kept on the disks of brokers"),
    "local.retention.ms": _kept("-2", integer(-2), "age kept on the disks of brokers"),
    "message.downconversion.enable": _kept("true", _BOOLEAN, "formats before Kafka 0.11"),
    "message.timestamp.after.max.ms": _kept("3600000", integer(0), "how far in the future"),
    "message.timestamp.before.max.ms": _kept(str(INT64_MAX), integer(0), "how far in the past"),
    "preallocate": _kept("false", _BOOLEAN, "whether files get their size at first"),
    "remote.log.copy.disable": _kept("false", _BOOLEAN, "no more copies to tiered storage"),
    "remote.log.delete.on.disable": _kept("false", _BOOLEAN, "delete what tiered storage has"),
    "remote.storage.enable": _kept("false", _BOOLEAN, "tiered storage; objects are all there is"),
    "segment.index.bytes": _kept("10485760", integer(4, INT32_MAX), "size of a file of an index"),
    "segment.jitter.ms": _kept("0", integer(0), "spread of the ends of segments"),
}
