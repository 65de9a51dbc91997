"""The `Runner` that uses Spark workers, on this machine or on a cluster.

Only payloads, results and the rows of a shuffle pass through the JVM, which spills them to disk if
needed. Tasks read and write the stores directly.

A result arrives as soon as the Spark task that made it ends: in addition to the list that Spark
returns at the end, tasks add results to an accumulator, which Spark delivers here with every task
that ends. A `RiachoError` is encoded in the text of Spark's error, because Spark passes on nothing
else.
"""

import base64
import pickle
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from pyspark import InheritableThread
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from service.jobs.runners.runners import (
    GROUP,
    Cancelled,
    Gather,
    Regroup,
    Spread,
    Task,
    TaskFailed,
    Worker,
    failed,
    joined,
    split,
)
from service.jobs.stores import Shipped, Stores
from storage.errors import RiachoError

SLICES_PER_CORE: Final = 32
"""Maximum Spark tasks per core for payloads. Each costs some milliseconds; with many, one slow task
does not hold up the others, which run on other cores."""

SHUFFLE_PER_CORE: Final = 4
"""Number of Spark tasks per core for the groups of a shuffle."""

CANCEL_S_MAX: Final = 30.0
"""Maximum wait for a cancelled Spark job to end."""

_CANCEL_AGAIN_S: Final = 0.5
_ERROR: Final = re.compile(r"riacho-error<([A-Za-z0-9+/=]*)>")
_PAYLOADS: Final = "index long, payload binary"
_RESULT: Final = pa.schema([pa.field(GROUP, pa.int64(), nullable=False), ("result", pa.binary())])

_UNREADABLE: Final = (msgspec.MsgspecError, KeyError, TypeError, ValueError)
_Plain: TypeAlias = str | int | float | bool | None

Row: TypeAlias = tuple[int, bytes]
Rows: TypeAlias = "SimpleQueue[Iterable[Row] | Exception]"


class SparkRunner:
    """A `Runner` in the workers of `spark`, which open the stores that `shipped` names."""

    def __init__(self, spark: SparkSession, shipped: Shipped) -> None:
        self._spark = spark
        self._context = spark.sparkContext
        self._shipped = shipped
        self._jobs = 0
        self._going: list[Rows] = []

    @property
    def parallelism(self) -> int:
        return max(1, self._context.defaultParallelism)

    def run(self, function: Task, payloads: Sequence[bytes]) -> Iterator[bytes]:
        return (result for _, result in self.indexed(function, payloads))

    def indexed(self, function: Task, payloads: Sequence[bytes]) -> Iterator[Row]:
        if not payloads:
            return
        rows: Rows = SimpleQueue()
        reported = self._context.accumulator([], _ReportedRows(rows))
        work = partial(_tasks, self._shipped, function, reported)
        dealt, count = self._dealt(payloads)
        rdd = self._context.parallelize(dealt, count).mapPartitions(work)
        yield from self._job(rdd.collect, rows)

    def shuffle(
        self, first: Spread, payloads: Sequence[bytes], *then: Regroup, last: Gather
    ) -> Iterator[Row]:
        if not payloads:
            return
        dealt, count = self._dealt(payloads)
        frame = self._spark.createDataFrame(self._context.parallelize(dealt, count), _PAYLOADS)
        frame = _mapped(frame, partial(_spread, self._shipped, first), first.schema)
        for phase in then:
            work = partial(_each_group, self._shipped, partial(_regrouped, phase))
            frame = _mapped(self._shuffled(frame, phase.sort_by), work, phase.schema)
        work = partial(_each_group, self._shipped, partial(_gathered, last))
        frame = _mapped(self._shuffled(frame, last.sort_by), work, _RESULT)

        def collect() -> list[Row]:
            return [(row[0], bytes(row[1])) for row in frame.collect()]

        yield from self._job(collect, SimpleQueue())

    def cancel(self) -> None:
        for rows in self._going:
            rows.put(Cancelled("it was stopped"))

    def close(self) -> None:
        """Do nothing: the caller closes the session, and the stores are closed with its workers."""

    def _dealt(self, payloads: Sequence[bytes]) -> tuple[list[Row], int]:
        """Return the payloads so that neighbours, of similar size, go to different tasks."""
        count = min(len(payloads), SLICES_PER_CORE * self.parallelism)
        numbered = list(enumerate(payloads))
        return list(chain.from_iterable(numbered[start::count] for start in range(count))), count

    def _shuffled(self, frame: DataFrame, sort_by: Sequence[str]) -> DataFrame:
        count = SHUFFLE_PER_CORE * self.parallelism
        return frame.repartition(count, GROUP).sortWithinPartitions(GROUP, *sort_by)

    def _job(self, collect: Callable[[], list[Row]], rows: Rows) -> Generator[Row, None, None]:
        self._jobs += 1
        name = f"riacho-{id(self)}-{self._jobs}"
        over: Rows = SimpleQueue()

        def work() -> None:
            try:
                self._context.setJobGroup(name, "riacho")
                over.put(collect())
            except Exception as error:  # noqa: BLE001 - It is raised where results are awaited.
                over.put(error)
            rows.put([])

        thread = InheritableThread(target=work, daemon=True)
        self._going.append(rows)
        thread.start()
        try:
            yield from _rows(rows, over)
        finally:
            self._going.remove(rows)
            self._end(thread, name)

    def _end(self, thread: InheritableThread, name: str) -> None:
        # A job that has not begun yet cannot be cancelled, so retry until it has ended.
        for _ in range(int(CANCEL_S_MAX / _CANCEL_AGAIN_S)):
            if not thread.is_alive():
                return
            self._context.cancelJobGroup(name)
            thread.join(_CANCEL_AGAIN_S)


def _rows(rows: Rows, over: Rows) -> Generator[Row, None, None]:
    """Yield every row once: as soon as it is reported or, at the latest, when the job ends."""
    seen: set[int] = set()
    while True:
        found = rows.get()
        is_over = not found
        if is_over:
            found = over.get()
        if isinstance(found, Exception):
            raise _raised(found)
        for index, result in found:
            if index not in seen:
                seen.add(index)
                yield index, result
        if is_over:
            return


def _raised(error: Exception) -> RiachoError:
    """Return the error of a task if Spark's error contains it, else a `TaskFailed`."""
    if isinstance(error, RiachoError):
        return error
    text = str(error)
    ours = _ERROR.search(text)
    if ours is not None:
        with suppress(*_UNREADABLE):
            return _unpacked(ours[1])
    return TaskFailed(f"Spark gave up: {_gist(text)}")


def _gist(text: str) -> str:
    """Return the most useful line: the error of a Python traceback, or else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception): ", line)]
    return (raised or lines or ["it did not say why"])[0][:500]


class _ReportedRows(AccumulatorParam[list[Row]]):
    """Collects rows in a worker; in the driver, puts them into the queue."""

    def __init__(self, rows: "Rows | None" = None) -> None:
        self._rows = rows

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return _ReportedRows, ()

    def zero(self, value: list[Row]) -> list[Row]:
        return []

    def addInPlace(self, value1: list[Row], value2: list[Row]) -> list[Row]:  # noqa: N802
        if self._rows is None:
            return value1 + value2
        if value2:
            self._rows.put(value2)
        return value1


def _mapped(
    frame: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    def mapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return work(batches)

    return frame.mapInArrow(mapped, from_arrow_schema(schema))


# What follows runs in Spark's workers.

_WORKERS: Final[dict[bytes, Worker]] = {}
"""Workers with open stores in this process, by the pickled `Shipped` that opens them."""


def _worker(shipped: Shipped) -> Worker:
    name = pickle.dumps(shipped)
    if name not in _WORKERS:
        _WORKERS[name] = Worker(shipped)
    return _WORKERS[name]


@contextmanager
def _errors_travel() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ours = error if isinstance(error, RiachoError) else failed(error)
        raise RuntimeError(f"riacho-error<{_packed(ours)}> {ours}") from error


def _packed(error: RiachoError) -> str:
    """Return an error as text, without spaces: its class and its arguments.

    Not pickled: text of a record may get into the text of an error, and whoever makes a process
    unpickle something chooses what it does.
    """
    try:
        packed = _text_of(error)
        _unpacked(packed)
    except _UNREADABLE:
        # Not every error can be made again from its arguments.
        packed = _text_of(failed(error))
    return packed


def _text_of(error: RiachoError) -> str:
    name = type(error).__name__
    return base64.b64encode(msgspec.json.encode((name, error.args))).decode()


def _unpacked(packed: str) -> RiachoError:
    name, arguments = msgspec.json.decode(base64.b64decode(packed), type=tuple[str, list[_Plain]])
    kinds = {kind.__name__: kind for kind in _kinds(RiachoError)}
    return kinds[name](*arguments)


def _kinds(family: type[RiachoError]) -> Iterator[type[RiachoError]]:
    yield family
    for kind in family.__subclasses__():
        yield from _kinds(kind)


def _tasks(shipped: Shipped, function: Task, reported: Any, rows: Iterable[Row]) -> Iterator[Row]:
    worker = _worker(shipped)
    for index, payload in rows:
        with _errors_travel():
            result = worker.submit(partial(_call, function, payload)).result()
        reported.add([(index, result)])
        yield index, result


async def _call(function: Task, payload: bytes, stores: Stores) -> bytes:
    return await function(stores, payload)


def _spread(
    shipped: Shipped, phase: Spread, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    worker = _worker(shipped)
    for batch in batches:
        for payload in batch.column("payload").to_pylist():
            with _errors_travel():
                yield from worker.iterate(partial(_spreading, phase, payload))


def _spreading(phase: Spread, payload: bytes, stores: Stores) -> AsyncIterator[pa.RecordBatch]:
    return phase.function(stores, payload)


GroupWork: TypeAlias = Callable[[int, list[pa.RecordBatch], Stores], AsyncIterator[pa.RecordBatch]]


def _each_group(
    shipped: Shipped, work: GroupWork, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    worker = _worker(shipped)
    pieces = chain.from_iterable(split(batch) for batch in batches)
    for group, rows in groupby(pieces, itemgetter(0)):
        held = [batch for _, batch in rows]
        with _errors_travel():
            yield from worker.iterate(partial(work, group, held))


def _regrouped(
    phase: Regroup, group: int, rows: list[pa.RecordBatch], stores: Stores
) -> AsyncIterator[pa.RecordBatch]:
    return phase.function(stores, group, joined(rows, ()))


async def _gathered(
    phase: Gather, group: int, rows: list[pa.RecordBatch], stores: Stores
) -> AsyncIterator[pa.RecordBatch]:
    result = await phase.function(stores, group, joined(rows, ()))
    yield pa.RecordBatch.from_pydict({GROUP: [group], "result": [result]}, schema=_RESULT)
