"""A client's cache of how many partitions each topic has.

A count is fetched once, refreshed in the background when it is old, and forgotten when the
gateway reports that the topic or partition does not exist. Counts only grow, so an old one is
safe to use: the newest partitions just receive no records yet.
"""

import asyncio
import time
from collections.abc import Callable

from riacho.errors import retry_after_s_of
from riacho.http.gateway import Gateway, topic_path
from riacho.http.retries import Backoff
from storage.errors import RiachoError, UnknownTopicOrPartition


class PartitionCounts:
    def __init__(
        self, gateway: Gateway, *, age_max_s: float, backoff: Backoff, random: Callable[[], float]
    ) -> None:
        self._gateway = gateway
        self._age_max_s = age_max_s
        self._backoff = backoff
        self._random = random
        self._known: dict[str, tuple[int, float]] = {}
        self._refreshes: dict[str, asyncio.Task[None]] = {}

    def known(self, topic: str) -> int | None:
        """Return the cached count, however old, or None. Callable from any thread."""
        found = self._known.get(topic)
        return None if found is None else found[0]

    def is_old(self, topic: str) -> bool:
        """Whether the count should be refreshed. Callable from any thread."""
        found = self._known.get(topic)
        return found is not None and time.monotonic() - found[1] > self._age_max_s

    def forget(self, topic: str) -> None:
        self._known.pop(topic, None)

    async def fetch(self, topic: str, timeout_s: float) -> int:
        """Return the count as the gateway knows it now.

        Raises `UnknownTopicOrPartition` at once. If the gateway is unavailable, retries for
        `timeout_s` and then raises its last error.
        """
        give_up_s = time.monotonic() + timeout_s
        attempt = 0
        while True:
            attempt += 1
            remaining_s = give_up_s - time.monotonic()
            try:
                return await self._ask(topic, max(remaining_s, 0.1))
            except RiachoError as error:
                wait_s = self._backoff.wait_s(attempt, self._random(), retry_after_s_of(error))
                if not error.retryable or time.monotonic() + wait_s > give_up_s:
                    raise
                await asyncio.sleep(wait_s)

    def refresh(self, topic: str) -> None:
        """Start to refresh the count, unless a refresh is already running."""
        if topic not in self._refreshes:
            task = asyncio.create_task(self._refresh(topic))
            self._refreshes[topic] = task
            task.add_done_callback(lambda _: self._refreshes.pop(topic))

    async def close(self) -> None:
        tasks = list(self._refreshes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._ask(topic, 30.0)
        except UnknownTopicOrPartition:
            self.forget(topic)
        except RiachoError:
            # Use the old count until the gateway is back; retry after another `age_max_s`.
            if (count := self.known(topic)) is not None:
                self._known[topic] = (count, time.monotonic())

    async def _ask(self, topic: str, timeout_s: float) -> int:
        reply = await self._gateway.request("GET", topic_path(topic), timeout_s=timeout_s)
        count = int(reply.json()["partitions"])
        self._known[topic] = (count, time.monotonic())
        return count
