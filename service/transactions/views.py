"""Views of transactions: how they ended, and for listing and describing them."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.transactions import state
from service.transactions.state import End, Open, Outcome, Ref, Results, Transaction
from storage.formats.partitions import PartitionNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    ref: Ref
    state: str
    started_ms: int | None = None
    timeout_ms: int | None = None
    partitions: Sequence[tuple[str, PartitionNumber]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    ref: Ref
    outcome: Outcome
    producer_id: int
    epoch: int
    """The next epoch, which is the current one unless more has happened since."""
    results: Results | None
    """None: it committed, but there was another commit since, and older results are not kept."""


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


def ended(txn: Transaction | None, ref: Ref, end: End, wanted: Outcome) -> Ended:
    """Return the reply to a commit or abort of a transaction that has end."""
    assert txn is not None, ref
    outcome = Outcome.ABORTED if end.outcome is Outcome.TIMED_OUT else end.outcome
    if outcome is not wanted:
        raise state.refusal(txn, ref, end)
    results: Results | None = {}
    if wanted is Outcome.COMMITTED:
        is_last = txn.results_of == (ref.producer_id, ref.epoch)
        results = txn.results if is_last else None
    return Ended(
        ref=ref,
        outcome=wanted,
        producer_id=end.next_producer_id,
        epoch=end.next_epoch,
        results=results,
    )
