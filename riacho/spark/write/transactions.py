"""The transaction that the tasks of a job write to, for driver and tasks.

    driver   begin ──▶ transaction id ─────────────────────────────▶ commit(names) or abort
    tasks              send · send · … ──▶ names of what was staged ──┘

The gateway answers every request with a name, and the commit lists the names to include. So any
request may be repeated at any time: what was staged by a request with a lost answer, or by a
failed or speculative attempt, is not listed, and the commit drops it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import pyarrow as pa
from pyarrow import ipc

from riacho.consumer.group_calls import group_path
from riacho.errors import new_error
from riacho.http.background import Synchronous
from riacho.http.gateway import ARROW, Gateway, Reply, topic_path
from riacho.http.retries import Backoff, patiently
from riacho.spark.write.options import WriteOptions
from riacho.transactions.calls import transaction_path
from storage.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    RiachoError,
    TransactionTooLarge,
    UnknownGroup,
)

FLIGHTS_MAX: Final = 2
"""Maximum concurrent requests of a task: one is written while the next one is prepared."""


class Connection(Synchronous):
    """Calls to the gateway, retried while that may help. Close it after use."""

    def __init__(self, options: WriteOptions) -> None:
        super().__init__()
        self._options = options
        self._gateway = Gateway(options.url, credentials=options.credentials)
        self._flying: set[Future[str]] = set()

    async def _aclose(self) -> None:
        for each in tuple(self._flying):
            each.cancel()
        await self._gateway.close()

    def begin(self, transactional_id: str) -> str:
        """Begin as the newest instance: older ones with this id can no longer commit."""
        body = {
            "transactional_id": transactional_id,
            "timeout_ms": self._options.transaction_timeout_ms,
        }
        return str(self._call("POST", "/v1/transactions", json=body).json()["transaction_id"])

    def commit(
        self, transaction_id: str, names: Sequence[str], offsets: Mapping[str, Any] | None = None
    ) -> None:
        """Make the requests with these names visible, in this order, and nothing else."""
        body: dict[str, Any] = {"staged": list(names)}
        if offsets is not None:
            body["offsets"] = offsets
        try:
            self._call("POST", transaction_path(transaction_id, "commit"), json=body)
        except RiachoError as error:
            raise _advised(error) from error

    def abort(self, transaction_id: str) -> None:
        """Drop all of the transaction. Does nothing if it has already ended."""
        try:
            self._call("POST", transaction_path(transaction_id, "abort"), json={})
        except (InvalidTransactionState, InvalidProducerEpoch):
            return

    def marker(self, group: str) -> int:
        """Return the largest offset that the group has committed anywhere, or 0."""
        try:
            reply = self._call("GET", group_path(group, "offsets"))
        except UnknownGroup:
            return 0
        return max((int(one["offset"]) for one in reply.json()["offsets"]), default=0)

    def stage(self, transaction_id: str, topic: str, batch: pa.RecordBatch) -> "Future[str]":
        """Start to send records; the future returns the name that a commit may list."""
        body = _encoded(batch, self._options)
        headers = {"content-type": ARROW, "riacho-transaction": transaction_id}
        path = topic_path(topic, "records")

        async def send() -> str:
            reply = await self._patiently("POST", path, content=body, headers=headers)
            return str(reply.json()["staged"])

        flying = asyncio.run_coroutine_threadsafe(send(), self._background.loop)
        self._flying.add(flying)
        flying.add_done_callback(self._flying.discard)
        return flying

    def _call(self, method: str, path: str, json: Any = None) -> Reply:
        return self._run(self._patiently(method, path, json=json))

    async def _patiently(self, method: str, path: str, **request: Any) -> Reply:
        async def ask() -> Reply:
            return await self._gateway.request(method, path, **request)

        return await patiently(ask, Backoff(), self._options.patience_s)


class Stager:
    """What one task writes, a few requests at a time."""

    def __init__(self, connection: Connection, transaction_id: str) -> None:
        self._connection = connection
        self._transaction_id = transaction_id
        self._flying: list[Future[str]] = []
        self.names: list[str] = []
        """In the order of `send`."""

    def send(self, topic: str, batch: pa.RecordBatch) -> None:
        """Start to send records; raise the errors of earlier ones."""
        if len(self._flying) >= FLIGHTS_MAX:
            self._land()
        self._flying.append(self._connection.stage(self._transaction_id, topic, batch))

    def finish(self) -> list[str]:
        """Wait until all requests are staged, and return their names."""
        while self._flying:
            self._land()
        return self.names

    def _land(self) -> None:
        try:
            self.names.append(self._flying.pop(0).result())
        except RiachoError as error:
            raise _advised(error) from error


def _encoded(batch: pa.RecordBatch, options: WriteOptions) -> bytes:
    codec = None if options.compression == "none" else options.compression
    sink = pa.BufferOutputStream()
    with ipc.new_stream(
        sink, batch.schema, options=ipc.IpcWriteOptions(compression=codec)
    ) as writer:
        writer.write_batch(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


_ADVICE: Final[dict[type[RiachoError], str]] = {
    TransactionTooLarge: (
        "this is more than one commit can take, about 1 GiB: let a streaming query read less at a"
        " time (maxOffsetsPerTrigger), and a batch write commit each task by itself"
        " (.option('atomic', 'task'), after repartition() if tasks are large)"
    ),
    InvalidTransactionState: (
        "it took longer than transactionTimeoutMs, at most 15 minutes, from the begin of the first"
        " task to the commit: read less at a time, use more cores, or write with"
        " .option('atomic', 'task')"
    ),
    InvalidProducerEpoch: (
        "another driver goes on with this query, from the same checkpoint or with the same"
        " transactionalId, and this one must stop; if it is another query, give one of them a"
        " transactionalId of its own"
    ),
}


def _advised(error: RiachoError) -> RiachoError:
    """Return `error` with what to do about it in Spark's terms."""
    for kind, advice in _ADVICE.items():
        is_late = "timed out" in str(error)
        if isinstance(error, kind) and (is_late or kind is not InvalidTransactionState):
            return new_error(kind, f"{error}. In Spark: {advice}")
    return error
