"""Views of transactions, for listing and describing them."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.transactions.state import End, Open, Outcome, Ref, Transaction
from storage.formats.partitions import PartitionNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    ref: Ref
    state: str
    started_ms: int | None = None
    timeout_ms: int | None = None
    partitions: Sequence[tuple[str, PartitionNumber]] = ()


def view(ref: Ref, found: Open | End) -> View:
    """Return the view of one transaction."""
    if isinstance(found, End):
        is_committed = found.outcome is Outcome.COMMITTED
        return View(ref=ref, state="committed" if is_committed else "aborted")
    touched = [(each.topic, partition) for each in found.staged for partition in each.counts()]
    return View(
        ref=ref,
        state="ongoing",
        started_ms=found.started_ms,
        timeout_ms=found.timeout_ms,
        partitions=sorted(touched),
    )


def latest(transactional_id: str, txn: Transaction) -> View:
    """Return the open transaction of a transactional id, or else the last one."""
    if txn.open is None and txn.ends:
        last = txn.ends[-1]
        if (last.next_producer_id, last.next_epoch) == (txn.producer_id, txn.epoch):
            return view(Ref(transactional_id, last.producer_id, last.epoch), last)
    ref = Ref(transactional_id, txn.producer_id, txn.epoch)
    return View(ref=ref, state="empty") if txn.open is None else view(ref, txn.open)
