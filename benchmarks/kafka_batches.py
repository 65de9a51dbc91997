"""Kafka's record batches, on one core: checked, decoded, encoded, beside aiokafka's Cython.

    python -m benchmarks.kafka_batches

Times are CPU seconds, best of some rounds in which all rows take turns; compare rows of one run.
aiokafka makes Python objects where we make columns, so its figures are a yardstick only. `varied`
sizes are from half to one and a half of what is named: with one size for all records the chain of
lengths is guessed instead of walked.
"""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from storage.formats.kafka import batches
from storage.formats.kafka.compression import COMPRESSIONS, Compression
from storage.formats.kafka.decoding import decode
from storage.formats.kafka.encoding import encode
from storage.formats.records import record_batch

ROUNDS = 15
CALLS_RECORDS = 2000  # Repetitions of a call with few records, to measure it warm.
NOW_MS = 1_700_000_000_000
LIMIT = 1 << 30
SHAPES = ((10_000, 100), (1_000, 1024), (100, 100), (1, 100))


@dataclass(frozen=True)
class Row:
    name: str
    run: Callable[[], Any]


def main() -> None:
    for count, size in SHAPES:
        for varied in (False, True) if count > 1 else (False,):
            show(count, size, varied)


def show(count: int, size: int, varied: bool) -> None:
    values = values_of(count, size, varied)
    stamps = [NOW_MS + number // 10 for number in range(count)]
    batch = record_batch(stamps, [None] * count, values)
    rows = [row for codec in COMPRESSIONS for row in ours(batch, codec)]
    rows += aiokafka(batch, stamps, values)
    print(f"\n{count:,} × {size} B{', varied' if varied else '':<36} {'ms':>8} {'M rec/s':>9}")
    for row, best_s in zip(rows, measured(rows, count), strict=True):
        print(f"{row.name:<44} {best_s * 1e3:>8.3f} {count / best_s / 1e6:>9.2f}")


def values_of(count: int, size: int, varied: bool) -> list[bytes]:
    dice = random.Random(1)
    words = [b"%x" % dice.getrandbits(40) for _ in range(500)]
    sizes = [dice.randrange(size // 2, size * 3 // 2) if varied else size for _ in range(count)]
    return [b" ".join(dice.choices(words, k=each // 8 + 1))[:each] for each in sizes]


def ours(batch: pa.RecordBatch, codec: Compression) -> list[Row]:
    data = bytes(encode(batch, base_offset=0, codec=codec))
    return [
        Row(
            f"check, {codec}",
            lambda: batches.check(
                data, record_bytes_max=LIMIT, needs_keys=False, decompressed_bytes_max=LIMIT
            ),
        ),
        Row(f"decode, {codec}", lambda: decode(data)),
        Row(f"encode, {codec}", lambda: encode(batch, base_offset=0, codec=codec)),
    ]


def aiokafka(batch: pa.RecordBatch, stamps: list[int], values: list[bytes]) -> list[Row]:
    data = bytes(encode(batch, base_offset=0, codec="none"))

    def build() -> None:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, LIMIT)
        for offset, (stamp, value) in enumerate(zip(stamps, values, strict=True)):
            builder.append(offset, stamp, None, value, [])
        builder.build()

    return [
        Row("aiokafka reads objects, none", lambda: list(DefaultRecordBatch(data))),
        Row("aiokafka builds from objects, none", build),
    ]


def measured(rows: list[Row], count: int) -> list[float]:
    """Return seconds of CPU. Rows take turns, so that a busy moment hits them all."""
    best_s = [math.inf] * len(rows)
    calls = max(1, CALLS_RECORDS // count)
    for _ in range(ROUNDS):
        for number, row in enumerate(rows):
            began = time.process_time()
            for _ in range(calls):
                row.run()
            best_s[number] = min(best_s[number], (time.process_time() - began) / calls)
    return best_s


if __name__ == "__main__":
    main()
