"""Administration of transactions: list, describe and abort them."""

from dataclasses import dataclass

from riacho.admin.groups import PartitionName
from riacho.http.background import Synchronous
from riacho.http.gateway import Gateway
from riacho.http.replies import parsed
from riacho.transactions.calls import transaction_path


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    transaction_id: str
    transactional_id: str
    state: str
    """empty (none yet), ongoing, committed or aborted."""
    producer_id: int
    epoch: int
    started_ms: int | None = None
    timeout_ms: int | None = None
    partitions: list[PartitionName]
    """Partitions for which an ongoing transaction has records."""


class AsyncTransactionAdmin:
    _gateway: Gateway

    async def list_transactions(self) -> list[TransactionInfo]:
        """Return all transactional ids, each with its open or its last transaction."""
        reply = await self._gateway.request("GET", "/v1/transactions")
        return parsed(reply, list[TransactionInfo], "transactions")

    async def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """Return one transaction, or raise `UnknownTransaction`."""
        reply = await self._gateway.request("GET", transaction_path(transaction_id))
        return parsed(reply, TransactionInfo)

    async def abort_transaction(self, transaction_id: str) -> None:
        """Abort a transaction: nothing of it is written, and its producer gets an error.

        Raises `InvalidTransactionState` if it is committed already.
        """
        path = transaction_path(transaction_id, "abort")
        await self._gateway.request("POST", path, json={})


class TransactionAdmin(Synchronous):
    """As `AsyncTransactionAdmin`, without an event loop."""

    _admin: AsyncTransactionAdmin

    def list_transactions(self) -> list[TransactionInfo]:
        """Return all transactional ids, each with its open or its last transaction."""
        return self._run(self._admin.list_transactions())

    def describe_transaction(self, transaction_id: str) -> TransactionInfo:
        """Return one transaction, or raise `UnknownTransaction`."""
        return self._run(self._admin.describe_transaction(transaction_id))

    def abort_transaction(self, transaction_id: str) -> None:
        """Abort a transaction, so that nothing of it is written; see `AsyncAdmin`."""
        self._run(self._admin.abort_transaction(transaction_id))
