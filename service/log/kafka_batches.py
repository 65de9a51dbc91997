"""Batches that came by Kafka's protocol, as a topic stores them.

By default as they came: their bytes are the slice. A topic may ask for Arrow slices instead
(`riacho.kafka.slices`), for another codec (`compression.type`), or for the gateway's clock
(`message.timestamp.type`); only then anything is decoded or changed here.
"""

from dataclasses import replace

import pyarrow as pa

from storage.formats.kafka.batches import Batches, recompressed, stamped
from storage.formats.kafka.decoding import decode
from storage.formats.records import RECORD_SCHEMA
from storage.lanes.building import Records
from storage.reading.forms import KafkaForm
from storage.topics.config import TopicConfig


def is_kept(config: TopicConfig, batches: Batches) -> bool:
    """Whether `as_stored` returns the batches themselves, without work that takes long."""
    is_recoded = config.kafka_codec not in (None, batches.codec)
    return config.keeps_kafka_batches and not is_recoded and not _stamps(config, batches)


def _stamps(config: TopicConfig, batches: Batches) -> bool:
    """Whether the gateway's clock stamps them: also if their producer knows no time at all.

    Otherwise retention would take them for older than everything else.
    """
    return config.stamps_appends or batches.max_ms < 0


def as_stored(config: TopicConfig, batches: Batches, now_ms: int) -> Records:
    """Return the records as a topic with this `config` stores them."""
    if is_kept(config, batches):
        return batches
    if not config.keeps_kafka_batches:
        records = decode(batches.data)
        if _stamps(config, batches):
            now = pa.array([now_ms] * records.num_rows, pa.int64())
            records = pa.RecordBatch.from_arrays([now, *records.columns[1:]], schema=RECORD_SCHEMA)
        return records
    codec = config.kafka_codec
    if codec is not None and codec != batches.codec:
        limit = batches.record_bytes
        data = memoryview(recompressed(batches.data, codec, decompressed_bytes_max=limit))
        batches = replace(batches, data=data, codec=codec)
    if _stamps(config, batches):
        data = memoryview(stamped(batches.data, now_ms))
        batches = replace(batches, data=data, min_ms=now_ms, max_ms=now_ms)
    return batches


def kafka_form(config: TopicConfig) -> KafkaForm:
    """Return how a consumer that speaks Kafka's protocol gets records that are stored otherwise.

    Not compressed by default: some clients know no codec, or only gzip.
    """
    return KafkaForm(config.kafka_codec or "none")
