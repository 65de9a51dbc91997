"""Compare-and-set with doubt: read, decide, write if nothing has changed since, else retry.

Two loops, because there are two kinds of change:

    change_item   one item; the conflict returns its new version, so a retry needs no read
    retry         any items; the attempt itself reads, decides and writes

Both follow the same rules:

- A *conflict* means that this attempt wrote nothing: decide again.
- An *unknown outcome* puts the change in doubt: the write may be applied, even later. The next
  attempt decides on what is stored then. It recognises its own write, or writes again; the
  condition on the version keeps two attempts from both being applied.
- While a change is in doubt, no error may claim that nothing was written: `Unavailable` becomes
  `OutcomeUnknown`.
- Attempts are limited. When they are used up: `OutcomeUnknown` if in doubt, else `Contended`.
"""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from storage.errors import Contended, MetadataConflict, OutcomeUnknown, RiachoError, Unavailable
from storage.stores.metadata import MetadataStore, Op, Put, Versioned

T = TypeVar("T")

Transact: TypeAlias = Callable[[Sequence[Op]], Awaitable[Mapping[str, str]]]
"""`MetadataStore.transact`, or a replacement that adds conditions."""

BackOff: TypeAlias = Callable[[int], Awaitable[None]]
"""Waits before the next attempt; takes the number of attempts that failed so far."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of a retried change, and the wait between two attempts."""

    attempts_max: int
    back_off: BackOff | None = None
    s_max: float = math.inf
    monotonic_s: Callable[[], float] = lambda: 0.0

    async def wait(self, lost: int) -> None:
        """Wait before the next attempt, if there is one after the `lost` ones."""
        if self.back_off is not None and lost < self.attempts_max:
            await self.back_off(lost)


@dataclass(frozen=True, slots=True)
class Again:
    """The result of an attempt that wrote nothing, because what it relied on has changed."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The result of an attempt that is refused, though an earlier one may have been applied."""

    error: RiachoError


async def retry(
    what: str, attempt: Callable[[bool], Awaitable[T | Again | Undecided]], patience: Patience
) -> T:
    """Call `attempt` until it returns a result; retry after conflicts and unknown outcomes.

    Its argument is whether an earlier attempt may have been applied. Raises as described above,
    `OutcomeUnknown` if the attempt is `Undecided`, and every other error of `attempt`.
    """
    is_in_doubt = False
    began_s = patience.monotonic_s()
    for number in range(1, patience.attempts_max + 1):
        result: T | Again | Undecided = Again()
        try:
            result = await attempt(is_in_doubt)
        except MetadataConflict:
            pass
        except OutcomeUnknown:
            is_in_doubt = True
        except Unavailable as error:
            if is_in_doubt:
                raise doubtful(what, error) from error
            raise
        if isinstance(result, Undecided):
            raise doubtful(what, result.error) from result.error
        if not isinstance(result, Again):
            return result
        # One attempt may itself retry for 15 seconds.
        if patience.monotonic_s() - began_s > patience.s_max:
            break
        await patience.wait(number)
    if is_in_doubt:
        raise OutcomeUnknown(f"{what} may have changed; look before trying again")
    raise Contended(f"{what} is changed by others all the time; send it again")


@dataclass(frozen=True, slots=True)
class Keep(Generic[T]):
    """A decision to write nothing."""

    result: T


@dataclass(frozen=True, slots=True)
class Replace(Generic[T]):
    """A decision to write `value` in place of the item."""

    value: bytes
    result: T


Decide: TypeAlias = Callable[[Versioned | None], Awaitable[Keep[T] | Replace[T] | Again]]
Landed: TypeAlias = Callable[[Versioned | None, T], Awaitable[T | None]]


async def change_item(
    metadata: MetadataStore,
    key: str,
    decide: Decide[T],
    patience: Patience,
    *,
    transact: Transact | None = None,
    landed: Landed[T] | None = None,
) -> T:
    """Return the result of the decision that was carried out.

    `decide` gets the item, and is called again whenever another writer was first; after `Again`
    with the item read again. `landed` gets the item that was found after an attempt without a
    reply and the result of that attempt; it returns the final result if the attempt was applied.
    Without `landed`, `decide` must recognise that by itself. `transact` replaces the store's own.

    Raises as described above, and every error of `decide`, `landed` and the store.
    """
    doubts: list[T] = []
    try:
        return await _change_item(metadata, key, decide, patience, transact, landed, doubts)
    except Unavailable as error:
        if doubts:
            raise doubtful(key, error) from error
        raise


async def _change_item(
    metadata: MetadataStore,
    key: str,
    decide: Decide[T],
    patience: Patience,
    transact: Transact | None,
    landed: Landed[T] | None,
    doubts: list[T],
) -> T:
    """As `change_item`; `doubts` gets the results of the attempts that may be applied."""
    put = transact or metadata.transact
    item = await metadata.get(key)
    for number in range(1, patience.attempts_max + 1):
        decision = await decide(item)
        if isinstance(decision, Keep):
            return decision.result
        if isinstance(decision, Again):
            item = await metadata.get(key)
            continue
        try:
            await put([Put(key, decision.value, None if item is None else item.version)])
            return decision.result
        except MetadataConflict as conflict:
            item = await found_instead(metadata, key, conflict)
            applied = await _applied(landed, item, doubts)
            # The item is no longer the one that the earlier attempts expected.
            doubts.clear()
        except OutcomeUnknown:
            doubts.append(decision.result)
            item = await metadata.get(key)
            applied = await _applied(landed, item, doubts)
        if applied is not None:
            return applied
        await patience.wait(number)
    raise Contended(f"others changed {key} {patience.attempts_max} times in a row; try again")


async def _applied(
    landed: Landed[T] | None, item: Versioned | None, doubts: Sequence[T]
) -> T | None:
    """Return the result of the attempt in doubt that `item` shows to be applied, if any."""
    if landed is not None:
        for sent in doubts:
            result = await landed(item, sent)
            if result is not None:
                return result
    return None


async def found_instead(
    metadata: MetadataStore, key: str, conflict: MetadataConflict
) -> Versioned | None:
    """Return the item found instead of the expected one; read it if the conflict lacks it."""
    return conflict.current[key] if key in conflict.current else await metadata.get(key)


def doubtful(what: str, error: RiachoError) -> OutcomeUnknown:
    """Return the error to report if `error` ended a change that may have been applied before."""
    return OutcomeUnknown(f"{what} may have changed: {error}")
