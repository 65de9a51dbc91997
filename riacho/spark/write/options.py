"""Options of a write: the topic, the transactional id, and what is atomic."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from riacho.http.identity import NOTHING_GIVEN, Credentials
from riacho.http.wire import Compression
from riacho.spark.options import Options
from storage.errors import InvalidConfig

TIMEOUT_MS_DEFAULT: Final = 900_000
"""Timeout of a transaction: the gateway's maximum, since a slow task is not a failure."""

_KNOWN: Final = (
    "topic",
    "transactionalId",
    "transactionTimeoutMs",
    "deliveryTimeoutMs",
    "atomic",
    "queryId",
    "batchId",
    "compression",
    "includeHeaders",
    "queryName",
    "checkpointLocation",
)
_SKIPPED: Final = ("kafka.acks", "kafka.batch.", "kafka.linger.", "kafka.compression.", "path")
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    url: str
    topic: str | None
    """The topic of all rows; None: each row's column `topic`."""
    transactional_id: str | None
    """None: a random one is used."""
    atomic: Literal["job", "task"]
    """What becomes visible atomically."""
    transaction_timeout_ms: int
    patience_s: float
    """How long requests to a gateway that does not answer are retried."""
    compression: Compression
    credentials: Credentials = NOTHING_GIVEN
    query_id: str | None = None
    batch_id: int = 0
    """The query and batch of a batch write; without a query, each write is a new one."""


def parse_batch(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a batch write, or raise `InvalidConfig`."""
    options = Options(given, _KNOWN, skipped=_SKIPPED)
    query_id, batch_id = options.text("queryId"), options.integer("batchId", at_least=0)
    if (query_id is None) != (batch_id is None):
        raise InvalidConfig("give queryId and batchId together, as in foreachBatch, or neither")
    if query_id is None or batch_id is None:
        return _parse(options, _id(options, None))
    if _ID.fullmatch(query_id) is None:
        raise InvalidConfig(f"queryId is {query_id!r}; give letters, digits, '.', '_' and '-'")
    if options.text("atomic") == "task":
        raise InvalidConfig("atomic=task cannot tell whether a batch was written before")
    parsed = _parse(options, _id(options, f"spark-{query_id}"))
    return replace(parsed, query_id=query_id, batch_id=batch_id)


def parse_stream(given: Mapping[str, str]) -> WriteOptions:
    """Return the options of a streaming write, or raise `InvalidConfig`.

    A query needs a unique name that survives a restart, so that a restarted driver fences what is
    left of the old one. Its checkpoint location has both properties.
    """
    options = Options(given, _KNOWN, skipped=_SKIPPED)
    if options.choice("atomic", ("job", "task"), "job") != "job":
        raise InvalidConfig("atomic=task is for batch writes: a micro-batch is always whole")
    return _parse(options, _id(options, _of_checkpoint(options)))


def _parse(options: Options, transactional_id: str | None) -> WriteOptions:
    choice = options.choice("atomic", ("job", "task"), "job")
    compression = options.choice("compression", ("lz4", "zstd", "none"), "lz4")
    timeout_ms = options.integer("transactionTimeoutMs") or TIMEOUT_MS_DEFAULT
    return WriteOptions(
        url=options.url(),
        credentials=options.credentials(),
        topic=options.text("topic"),
        transactional_id=transactional_id,
        atomic="job" if choice == "job" else "task",
        transaction_timeout_ms=min(timeout_ms, TIMEOUT_MS_DEFAULT),
        patience_s=(options.integer("deliveryTimeoutMs") or 120_000) / 1000,
        compression=_COMPRESSIONS[compression],
    )


_COMPRESSIONS: Final[dict[str, Compression]] = {"lz4": "lz4", "zstd": "zstd", "none": "none"}


def _id(options: Options, default: str | None) -> str | None:
    given = options.text("transactionalId")
    if given is None:
        return default
    if _ID.fullmatch(given) is None:
        raise InvalidConfig(f"transactionalId is {given!r}; give letters, digits, '.', '_' and '-'")
    return given


def _of_checkpoint(options: Options) -> str | None:
    if options.text("transactionalId") is not None:
        return None
    place = options.text("checkpointLocation")
    if place is None:
        raise InvalidConfig(
            "this query has no name that survives a restart: set checkpointLocation with"
            " .option(…), not only in Spark's configuration, or give a transactionalId of its own"
        )
    for prefix in ("file://", "file:"):
        place = place.removeprefix(prefix)
    digest = hashlib.sha256(place.rstrip("/").encode()).hexdigest()
    return f"spark-{digest[:32]}"
