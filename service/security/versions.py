"""One item that changes with every key, ACL and quota, in the same transaction.

A gateway that reads this item alone, every few seconds, knows whether anything has changed. What it
reads afterwards is at least as new.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from service.world.clock import World
from storage import keys
from storage.cas import Again, retry
from storage.stores.metadata import MetadataStore, Op, Put

T = TypeVar("T")


async def change_security(
    metadata: MetadataStore,
    world: World,
    what: str,
    attempt: Callable[[bool], Awaitable[tuple[Sequence[Op], T] | Again]],
) -> T:
    """Do the operations that `attempt` returns, together with a new version; return its result.

    `attempt` reads and decides again after a conflict or a lost reply; its argument says whether
    an earlier attempt may have been applied. Without operations nothing is written.
    """

    async def once(is_in_doubt: bool) -> T | Again:
        version = await metadata.get(keys.security_version())
        decided = await attempt(is_in_doubt)
        if isinstance(decided, Again):
            return decided
        ops, result = decided
        if ops:
            expected = None if version is None else version.version
            await metadata.transact([*ops, Put(keys.security_version(), b"", expected)])
        return result

    return await retry(what, once, world.patience)
