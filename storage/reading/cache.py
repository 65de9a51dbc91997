"""A cache of immutable values, bounded by their size in bytes."""

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from storage.tasks import SingleFlight

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Keeps the most recently used values, at most `bytes_max` in total.

    Only for values that never change under their key: entries are never invalidated.
    """

    def __init__(self, bytes_max: int, size_of: Callable[[V], int]) -> None:
        self._bytes_max = bytes_max
        self._size_of = size_of
        self._values: OrderedDict[K, V] = OrderedDict()
        self._loading = SingleFlight[K, V]()
        self.size_bytes = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: K) -> V | None:
        value = self._values.get(key)
        if value is None:
            self.misses += 1
            return None
        self.hits += 1
        self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        size = self._size_of(value)
        if key in self._values or size > self._bytes_max:
            return
        self._values[key] = value
        self.size_bytes += size
        while self.size_bytes > self._bytes_max:
            _, dropped = self._values.popitem(last=False)
            self.size_bytes -= self._size_of(dropped)

    async def get_or_load(self, key: K, load: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the value; concurrent callers share one load."""
        value = self.get(key)
        if value is not None:
            return value
        return await self._loading.do(key, lambda: self._load(key, load))

    async def _load(self, key: K, load: Callable[[], Coroutine[Any, Any, V]]) -> V:
        value = await load()
        self.put(key, value)
        return value
