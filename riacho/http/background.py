"""One event loop in a background thread, shared by all synchronous clients.

The synchronous classes are thin: each owns its asynchronous twin and runs it here. That
works in scripts, in threads and inside a running event loop (Jupyter), because the caller's
own loop is never touched. The thread starts with the first client and ends with the last.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, ClassVar, Self, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """A lease on the shared loop; `release` it once."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _shared: ClassVar["BackgroundLoop | None"] = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._leases = 0
        self._thread = threading.Thread(target=self._serve, name="riacho", daemon=True)
        self._thread.start()

    @classmethod
    def lease(cls) -> "BackgroundLoop":
        """Return the shared loop, starting it if no client uses it yet."""
        with cls._lock:
            if cls._shared is None:
                cls._shared = cls()
            cls._shared._leases += 1
            return cls._shared

    def release(self) -> None:
        """Give the loop back; the last release stops it."""
        with self._lock:
            self._leases -= 1
            if self._leases:
                return
            BackgroundLoop._shared = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        if not self.is_current:
            self._thread.join()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's own thread, where it must not block."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns. An interrupt of the caller cancels it."""
        if self.is_current:
            work.close()
            raise RuntimeError("a callback must not wait for the client that calls it")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


class Synchronous:
    """What all synchronous clients share: a lease on the loop, and `with`."""

    def __init__(self) -> None:
        self._background = BackgroundLoop.lease()
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client. A second call does nothing."""
        if not self._open:
            return
        self._open = False
        try:
            self._background.run(self._aclose())
        finally:
            self._background.release()

    async def _aclose(self) -> None:
        raise NotImplementedError

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._open:
            work.close()
            raise RuntimeError(f"this {type(self).__name__} is closed")
        return self._background.run(work)
