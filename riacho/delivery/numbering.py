"""Batch numbers, with which the gateway detects repeated batches and keeps their order.

Records are counted per partition: a batch carries the producer's id, an epoch, and the
number of its first record, its *sequence*. The gateway takes sequences in order and without
gaps, remembers the last five batches, and answers a repeated one with its original offset.

When a batch is given up, its number is never used again and no later batch can be written.
Then the numbering *breaks*, and begins again with the next epoch and sequence 0, in that
partition only. The first batch of the new epoch fences the old one: a late copy of a batch
that was given up cannot be written after it.
"""

import asyncio
from typing import Final

from riacho.errors import new_error
from riacho.http.gateway import Gateway
from storage.errors import OutcomeUnknown, Unavailable

SEQUENCES: Final = 2**31
"""Sequences wrap to 0 after this many records: Kafka's are signed 32-bit numbers."""

EPOCH_MAX: Final = 2**15 - 1

IN_FLIGHT_MAX: Final = 5
"""How many batches the gateway remembers per producer and partition."""


class Numbering:
    """The numbers of one partition."""

    __slots__ = (
        "epoch", "is_broken", "is_doubtful", "is_unknown", "next_sequence", "producer_id"
    )  # fmt: skip

    def __init__(self) -> None:
        self.producer_id: int | None = None
        """None until a batch is sent, and after a restart with no epoch left."""
        self.epoch = 0
        self.next_sequence = 0
        self.is_broken = False
        self.is_doubtful = False
        """Whether the batch that broke it may nevertheless be written, now or later."""
        self.is_unknown = False
        """Whether the gateway does not know the producer id."""

    def take(self, record_count: int) -> tuple[int, int]:
        """Return epoch and sequence of a batch with `record_count` records."""
        sequence = self.next_sequence
        self.next_sequence = (sequence + record_count) % SEQUENCES
        return self.epoch, sequence

    def break_off(self, *, is_doubtful: bool, is_unknown: bool = False) -> None:
        """Note that a number will stay unused, so that no later batch can be written."""
        self.is_broken = True
        self.is_doubtful |= is_doubtful
        self.is_unknown |= is_unknown

    def restart(self) -> None:
        """Begin again with the next epoch, or with a new producer id if none is left."""
        self.next_sequence = 0
        self.epoch += 1
        if self.is_unknown or self.epoch > EPOCH_MAX:
            self.producer_id, self.epoch = None, 0
        self.is_broken = self.is_doubtful = self.is_unknown = False


class ProducerIds:
    """The id of this producer, requested when it is first needed."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._known: int | None = None
        self._asking: asyncio.Task[int] | None = None

    async def get(self) -> int:
        """Return the id; concurrent callers share one request.

        Errors never mean that something was written: an issued id that is lost does no harm.
        """
        if self._known is None:
            if self._asking is None:
                self._asking = asyncio.create_task(self._ask())
                # Retrieve the exception: all callers may have stopped waiting.
                self._asking.add_done_callback(lambda task: task.cancelled() or task.exception())
            return await asyncio.shield(self._asking)
        return self._known

    def forget(self, producer_id: int) -> None:
        """Ask for another id, since the gateway does not know this one."""
        if self._known == producer_id:
            self._known = None

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self) -> int:
        try:
            reply = await self._gateway.request("POST", "/v1/producers", json={})
            self._known = producer_id = int(reply.json()["producer_id"])
            return producer_id
        except OutcomeUnknown as error:
            detail = f"no producer id: {error}"
            raise new_error(Unavailable, detail, retryable=error.retryable) from error
        except (KeyError, TypeError, ValueError) as error:
            detail = f"the reply holds no producer id: {error!r}"
            raise new_error(Unavailable, detail, retryable=False) from error
        finally:
            self._asking = None


def number_headers(producer_id: int, epoch: int, sequence: int | str) -> dict[str, str]:
    """Return the headers that carry a batch's number."""
    return {
        "riacho-producer-id": str(producer_id),
        "riacho-producer-epoch": str(epoch),
        "riacho-sequence": str(sequence),
    }
