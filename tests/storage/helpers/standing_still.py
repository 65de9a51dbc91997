"""A process that is paused between an answer of the table and the code that handles it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from storage.stores.metadata import MetadataStore, Op, Versioned
from tests.storage.helpers.faults import FaultyMetadata

T = TypeVar("T")


class StandingStill(FaultyMetadata):
    """A table whose next answer, or refusal, is delayed until `meanwhile` has run.

    The answer does not contain what `meanwhile` changes (others commit, the clock moves).
    """

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def _held_back(self, call: Awaitable[T]) -> T:
        try:
            return await call
        finally:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                await meanwhile()

    async def get(self, key: str) -> Versioned | None:
        return await self._held_back(super().get(key))

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        return await self._held_back(super().list(prefix, after=after, limit=limit))

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        return await self._held_back(super().transact(ops))
