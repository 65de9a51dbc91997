"""Quotas with Kafka's names: who has which limit, and the arithmetic of buckets. Pure.

A quota is set for a user, a client, or both; `<default>` stands for all without one of their own.
For each kind of limit the first of these that sets it decides, as in Kafka:

    user and client                 ana, etl            counted for this client of this user
    user and default client         ana, <default>      for each client of this user apart
    user                            ana                 for all clients of this user together
    default user and client         <default>, etl      for each user with this client apart
    default user and default client <default>, <default>
    default user                    <default>           for each user apart
    client                          etl                 for all users with this client together
    default client                  <default>           for each client apart, of whichever users

A limit is a bucket that fills at its rate. A request takes as much as it needs, which may leave
less than nothing. It has to wait only until the bucket is half full: whoever waits a little longer
loses nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

DEFAULT: Final = "<default>"

RESOLVED_KEPT_MAX: Final = 10_000


class QuotaKind(StrEnum):
    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    TIME = "request_percentage"
    MUTATIONS = "controller_mutation_rate"


BURST_S: Final = {
    QuotaKind.PRODUCE: 2.0,
    QuotaKind.FETCH: 2.0,
    QuotaKind.TIME: 2.0,
    QuotaKind.MUTATIONS: 10.0,
}
"""What can be saved up, in seconds at the rate. Few calls make many mutations each."""

ENOUGH: Final = 0.5
"""The part of a full bucket that suffices for any request."""

ROUNDING: Final = 1e-9
"""The part of a full bucket that sums of floats may be wrong by."""

UNIT: Final = {
    QuotaKind.PRODUCE: "bytes produced a second",
    QuotaKind.FETCH: "bytes fetched a second",
    QuotaKind.TIME: "% of one processor",
    QuotaKind.MUTATIONS: "partitions created, deleted or added a second",
}

Rate = Annotated[float, Meta(gt=0, le=1e15)]


class QuotaLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits that one quota sets; None: none of this kind."""

    producer_byte_rate: Rate | None = None
    consumer_byte_rate: Rate | None = None
    request_percentage: Rate | None = None
    controller_mutation_rate: Rate | None = None

    def of(self, kind: QuotaKind) -> float | None:
        rate: float | None = getattr(self, kind)
        return rate

    @property
    def is_empty(self) -> bool:
        return all(self.of(kind) is None for kind in QuotaKind)


class QuotaEntity(NamedTuple):
    """For whom a quota is; None: for whichever."""

    user: str | None
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that applies to a request."""

    kind: QuotaKind
    rate: float
    user: str
    client_id: str
    """Requests with the same kind, user and client share the bucket; empty: whichever."""

    @property
    def fill(self) -> float:
        """What the bucket gains in a second."""
        return self.rate / 100 if self.kind is QuotaKind.TIME else self.rate

    @property
    def capacity(self) -> float:
        return self.fill * BURST_S[self.kind]

    def __str__(self) -> str:
        who = [f"user {self.user}"] if self.user else []
        who += [f"client {self.client_id}"] if self.client_id else []
        return f"the quota {self.kind} of {' and '.join(who)} is {self.rate:g} {UNIT[self.kind]}"


class PrincipalLimits(NamedTuple):
    """The limits of one principal with one client."""

    produce: Limit | None
    fetch: Limit | None
    time: Limit | None
    mutations: Limit | None


def user_of(principal: str) -> str:
    """Return the name of a principal as quotas have it: without its type, as in Kafka."""
    return principal.removeprefix("User:")


class QuotaTable:
    """All quotas, as of one moment."""

    def __init__(self, quotas: Mapping[QuotaEntity, QuotaLimits]) -> None:
        self.quotas: Final = quotas
        self._resolved: dict[tuple[str, str], PrincipalLimits | None] = {}

    def limits_of(self, principal: str, client_id: str) -> PrincipalLimits | None:
        """Return the limits that apply; None: none."""
        if not self.quotas:
            return None
        key = (principal, client_id)
        try:
            return self._resolved[key]
        except KeyError:
            pass
        found = PrincipalLimits(
            *(self._limit_of(kind, user_of(principal), client_id) for kind in QuotaKind)
        )
        resolved = found if any(found) else None
        if len(self._resolved) >= RESOLVED_KEPT_MAX:
            self._resolved.clear()
        self._resolved[key] = resolved
        return resolved

    def _limit_of(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        for entity in _candidates(user, client_id):
            limits = self.quotas.get(entity)
            rate = None if limits is None else limits.of(kind)
            if rate is not None:
                return Limit(
                    kind,
                    rate,
                    "" if entity.user is None else user,
                    "" if entity.client_id is None else client_id,
                )
        return None


def _candidates(user: str, client_id: str) -> Iterable[QuotaEntity]:
    """Yield the entities whose quotas may apply, the most specific first."""
    for owner in (user, DEFAULT):
        for client in (client_id, DEFAULT, None):
            if client != "":
                yield QuotaEntity(owner, client)
    for client in (client_id, DEFAULT):
        if client != "":
            yield QuotaEntity(None, client)


class Bucket(msgspec.Struct, array_like=True, frozen=True):
    """How full a bucket was at a moment; less than nothing if a request took more."""

    level: float
    at_ms: int


CLOCKS_APART_MS_MAX: Final = 10_000
"""A bucket that is further in the future was written by a clock that was wrong."""


def filled(bucket: Bucket | None, limit: Limit, now_ms: int) -> Bucket:
    """Return the bucket as it is now; it begins full.

    Gateways write it in turn, with clocks that differ a little, so its time never goes back.
    """
    if bucket is None:
        return Bucket(limit.capacity, now_ms)
    if bucket.at_ms > now_ms + CLOCKS_APART_MS_MAX:
        return Bucket(min(bucket.level, limit.capacity), now_ms)
    gained = max(0, now_ms - bucket.at_ms) / 1000 * limit.fill
    return Bucket(min(bucket.level + gained, limit.capacity), max(bucket.at_ms, now_ms))


@dataclass(frozen=True, slots=True)
class Taken:
    """An amount was taken, and this bucket is left."""

    bucket: Bucket
    amount: float


@dataclass(frozen=True, slots=True)
class TooLittle:
    """There is not enough now, but there will be."""

    throttle_ms: int


def take(bucket: Bucket, limit: Limit, needed: float, wanted: float) -> Taken | TooLittle:
    """Take `needed`, and up to `wanted` if there is so much."""
    enough = min(needed, limit.capacity * ENOUGH)
    if bucket.level < enough - ROUNDING * limit.capacity:
        return TooLittle(int((enough - bucket.level) / limit.fill * 1000) + 1)
    amount = max(needed, min(wanted, bucket.level))
    return Taken(Bucket(bucket.level - amount, bucket.at_ms), amount)
