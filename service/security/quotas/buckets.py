"""Quotas at work: what a request takes from its bucket, whichever gateway it comes to.

A bucket is an item of the table, so a limit holds for all gateways together, however the requests
are spread over them, and in functions, which have no memory. A gateway takes from it ahead of the
requests, as much as it has lately used in a quarter of a second. So a busy gateway writes the item
some ten times a second for each limited principal, and one with few requests with each of them.

Nothing here is done for a principal without a limit.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from service.security.quotas.limits import (
    Bucket,
    Limit,
    PrincipalLimits,
    QuotaTable,
    TooLittle,
    filled,
    take,
)
from service.security.quotas.open_calls import OpenCall, OpenCalls
from service.world.clock import World
from storage import keys
from storage.cas import Patience, retry
from storage.errors import (
    Contended,
    OutcomeUnknown,
    QuotaExceeded,
    StoreUnavailable,
)
from storage.formats import frames
from storage.stores.metadata import MetadataStore, Put

AHEAD_S: Final = 0.25
"""How much is taken ahead, in seconds at the rate at which this gateway has used it lately."""

KEPT_S: Final = 10.0
"""What was taken ahead is given up after this long without taking more. Much longer than a client
waits before it tries again."""

ACCOUNTS_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 20
CONTENDED_MS: Final = 250
"""Delay of a request that cannot take from its bucket, because too many others do."""

_MAGIC: Final = b"RQU1"
_DECODER: Final = msgspec.msgpack.Decoder(Bucket)


def decode_bucket(value: bytes) -> Bucket:
    """Return a bucket as it was stored, or raise `Corrupt`."""
    return frames.unpack(_MAGIC, value, _DECODER, "the use of a quota")


class Limited(Protocol):
    """Whom a limit is for: a caller of any door."""

    @property
    def principal(self) -> str: ...

    @property
    def client_id(self) -> str: ...


@dataclass(slots=True)
class _Account:
    """What this gateway has taken from a bucket and not used yet."""

    key: str
    balance: float = 0.0
    """Less than nothing if more was used, which the next request takes besides."""
    taken_s: float = -math.inf
    used: float = 0.0
    """Since then."""
    refused: float = 0.0
    """An amount for which the bucket does not suffice, until `refused_until_s`."""
    refused_until_s: float = -math.inf
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def use(self, amount: float) -> None:
        self.balance -= amount
        self.used += amount


class Unlimited:
    """Admits every request: for callers of a gateway without security."""

    def limits_of(self, caller: Limited) -> PrincipalLimits | None:
        """Return the limits of a caller; None: it has none, and need not be asked for."""
        return None

    def check_produce(self, caller: Limited) -> None:
        """Raise `QuotaExceeded` if it is known that nothing can be written now."""

    async def admit_produce(self, caller: Limited, size_bytes: int) -> None:
        """Count bytes that are to be written. Nothing may be written before this returns."""

    def fetch_bytes_max(self, caller: Limited) -> int | None:
        """Return how much to read at most; None: there is no limit.

        Raises `QuotaExceeded` if it is known that nothing can be sent now.
        """
        return None

    async def admit_fetch(self, caller: Limited, size_bytes: int) -> None:
        """Count bytes that are to be sent. Nothing may be sent before this returns."""

    async def admit_mutations(self, caller: Limited, count: int) -> None:
        """Count partitions that are to be created, deleted or added."""

    async def admit_time(self, caller: Limited) -> None:
        """Refuse a caller whose requests have used more processor time than they may."""

    def charge_time(self, caller: Limited, seconds: float) -> None:
        """Count processor time that a request has used."""

    def open_tail(self, caller: Limited) -> OpenCall:
        """Count a tail until it is closed."""
        return OpenCall()

    def open_wait(self, caller: Limited, wait_s: float) -> OpenCall:
        """Count a request that may wait for records, until it is closed."""
        return OpenCall()


class Quotas(Unlimited):
    """Admits requests within the quotas of their callers, or raises `QuotaExceeded`."""

    def __init__(
        self,
        metadata: MetadataStore,
        world: World,
        table: Callable[[], QuotaTable],
        *,
        tails_max: int = 1000,
        waits_max: int = 1000,
    ) -> None:
        """Obey the quotas that `table` returns at the moment."""
        self._metadata = metadata
        self._world = world
        self._table = table
        self._tails = OpenCalls("tails", tails_max)
        self._waits = OpenCalls("fetches that wait", waits_max)
        self._accounts: dict[tuple[str, str, str], _Account] = {}
        self._patience = Patience(ATTEMPTS_MAX, world.back_off)

    def open_tail(self, caller: Limited) -> OpenCall:
        return self._tails.take(caller.principal)

    def open_wait(self, caller: Limited, wait_s: float) -> OpenCall:
        return self._waits.take(caller.principal) if wait_s > 0 else OpenCall()

    def limits_of(self, caller: Limited) -> PrincipalLimits | None:
        return self._table().limits_of(caller.principal, caller.client_id)

    def check_produce(self, caller: Limited) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.produce is not None:
            self._check_refused(limits.produce, math.inf)

    async def admit_produce(self, caller: Limited, size_bytes: int) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.produce is not None:
            await self._take(limits.produce, size_bytes)

    def fetch_bytes_max(self, caller: Limited) -> int | None:
        limits = self.limits_of(caller)
        if limits is None or limits.fetch is None:
            return None
        self._check_refused(limits.fetch, math.inf)
        return max(1, int(limits.fetch.capacity / 2))

    async def admit_fetch(self, caller: Limited, size_bytes: int) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.fetch is not None and size_bytes:
            await self._take(limits.fetch, size_bytes)

    async def admit_mutations(self, caller: Limited, count: int) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.mutations is not None:
            await self._take(limits.mutations, count)

    async def admit_time(self, caller: Limited) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.time is not None:
            await self._take(limits.time, 0)

    def charge_time(self, caller: Limited, seconds: float) -> None:
        limits = self.limits_of(caller)
        if limits is not None and limits.time is not None:
            self._account(limits.time).use(seconds)

    def _account(self, limit: Limit) -> _Account:
        name = (limit.kind, limit.user, limit.client_id)
        account = self._accounts.get(name)
        if account is None:
            if len(self._accounts) >= ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
            digest = hashlib.sha256("\0".join(name).encode()).hexdigest()[:32]
            account = self._accounts[name] = _Account(keys.quota_use(digest))
        return account

    def _check_refused(self, limit: Limit, amount: float) -> None:
        account = self._account(limit)
        left_s = account.refused_until_s - self._world.monotonic_s()
        if left_s > 0 and amount >= account.refused:
            raise _exceeded(limit, int(left_s * 1000) + 1)

    async def _take(self, limit: Limit, amount: float) -> None:
        account = self._account(limit)
        if amount and amount <= account.balance and self._is_fresh(account):
            account.use(amount)
            return
        self._check_refused(limit, amount)
        # One at a time: what one takes ahead may suffice for the next.
        async with account.lock:
            if not self._is_fresh(account):
                account.balance = min(account.balance, 0.0)
            if amount > account.balance or account.balance <= 0:
                self._check_refused(limit, amount)
                await self._fill(account, limit, amount)
            account.use(amount)

    def _is_fresh(self, account: _Account) -> bool:
        return self._world.monotonic_s() - account.taken_s <= KEPT_S

    async def _fill(self, account: _Account, limit: Limit, amount: float) -> None:
        """Take from the bucket what is missing for `amount`, and some ahead."""
        began_s = self._world.monotonic_s()
        used_for_s = max(AHEAD_S, began_s - account.taken_s)
        ahead = min(account.used / used_for_s, limit.fill) * AHEAD_S
        needed = amount - account.balance
        try:
            taken = await self._taken(account.key, limit, needed, needed + ahead)
        except Contended:
            raise _exceeded(limit, CONTENDED_MS) from None
        except (StoreUnavailable, OutcomeUnknown):
            # The request itself will meet the same store, and says so better.
            taken = needed
        if isinstance(taken, TooLittle):
            account.refused_until_s = began_s + taken.throttle_ms / 1000
            account.refused = amount
            raise _exceeded(limit, taken.throttle_ms)
        account.balance += taken
        account.taken_s, account.used = began_s, 0.0

    async def _taken(
        self, key: str, limit: Limit, needed: float, wanted: float
    ) -> float | TooLittle:
        """Return what was taken from the bucket."""

        async def attempt(_: bool) -> float | TooLittle:
            # If a reply is lost, the same is taken again: then a little less is admitted.
            item = await self._metadata.get(key)
            stored = None
            if item is not None:
                stored = decode_bucket(item.value)
            found = take(filled(stored, limit, self._world.now_ms()), limit, needed, wanted)
            if isinstance(found, TooLittle):
                return found
            value = frames.seal(_MAGIC, msgspec.msgpack.encode(found.bucket))
            version = None if item is None else item.version
            await self._metadata.transact([Put(key, value, version, can_wait=True)])
            return found.amount

        return await retry("the use of a quota", attempt, self._patience)


def _exceeded(limit: Limit, throttle_ms: int) -> QuotaExceeded:
    return QuotaExceeded(f"{limit}; send it again in {throttle_ms} ms", throttle_ms)
