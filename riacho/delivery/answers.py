"""Answers to the senders of records: the offset of each record, or its error."""

import asyncio
import concurrent.futures
import logging
from contextlib import suppress
from typing import Final

from riacho.delivery.batches import Batch, Draft
from riacho.errors import new_error
from riacho.http.gateway import Reply
from riacho.records import RecordMetadata
from storage.errors import OutcomeUnknown, RiachoError, Unavailable

log = logging.getLogger("riacho")

NO_OFFSET: Final = -1
"""For a record that is or will be written at an offset that the gateway does not report."""

_CANCELLED: Final = (asyncio.InvalidStateError, concurrent.futures.InvalidStateError)


def offsets_of(reply: Reply, record_count: int) -> list[int]:
    """Return the offset of every record; -1 for all if the gateway did not wait for the write."""
    if reply.status == 202:
        return [NO_OFFSET] * record_count
    try:
        offsets = [
            result["base_offset"] + row
            for result in reply.json()["results"]
            for row in range(result["count"])
        ]
    except (KeyError, TypeError):
        offsets = []
    if len(offsets) != record_count:
        detail = f"the reply gives {len(offsets)} offsets for {record_count} records"
        raise new_error(OutcomeUnknown, detail, retryable=False)
    return offsets


def answer(batch: Batch, outcome: "list[int] | RiachoError") -> None:
    """Resolve the futures and call the callbacks of all records of `batch`."""
    if isinstance(outcome, RiachoError):
        for draft in batch.drafts:
            # A cancelled future only ends the wait; it does not withdraw the record.
            with suppress(*_CANCELLED):
                draft.answer.set_exception(outcome)
            _call(draft, None, outcome)
        return
    topic, partition = batch.partition
    for draft, offset in zip(batch.drafts, outcome, strict=True):
        metadata = RecordMetadata(topic, partition, offset, draft.timestamp)
        with suppress(*_CANCELLED):
            draft.answer.set_result(metadata)
        if draft.callback is not None:
            _call(draft, metadata, None)


def closed(batch: Batch) -> RiachoError:
    """Return the error for a batch that was given up because the producer was closed."""
    if batch.may_have_applied:
        return new_error(OutcomeUnknown, "the producer was closed while the record was sent")
    return new_error(Unavailable, "the producer was closed before the record was written")


def _call(draft: Draft, metadata: RecordMetadata | None, error: RiachoError | None) -> None:
    if draft.callback is None:
        return
    if isinstance(draft.answer, asyncio.Future) and not draft.answer.cancelled():
        draft.answer.exception()  # With a callback, the caller need not also await the future.
    try:
        draft.callback(metadata, error)
    except Exception:
        log.exception("callback failed", extra={"metadata": metadata})
