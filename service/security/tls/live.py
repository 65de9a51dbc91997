"""A TLS context whose files may change while it serves.

    handshake ─▶ the serving context ─▶ `sni_callback` ─▶ the newest context that was good

A handshake takes certificate, key and authorities from the newest context; connections that are
open keep theirs. So nothing is dropped when files change, and no handshake sees half of a change.
Files that do not fit together, as while a certificate is new and its key is still old, leave
everything as it was.
"""

import logging
import signal
import ssl
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from service.security.tls.files import TlsFiles, certificate_of, complaint, context_of
from service.security.tls.handshakes import WatchingContext
from service.world.clock import real_world
from storage.errors import InvalidConfig, Unavailable

log = logging.getLogger("riacho.tls")

LOOKED_EVERY_S: Final = 2.0
"""How often the files are looked at: three calls of `stat`."""


class LiveContext:
    def __init__(self, files: TlsFiles, now_ms: Callable[[], int]) -> None:
        """Read `files`, or raise `InvalidConfig` if they do not fit together."""
        self._files = files
        self._now_ms = now_ms
        self._seen = _stamps(files)
        self._newest = context_of(files)
        self.serving: Final = context_of(files, WatchingContext)
        """What a server listens with."""
        self.serving.sni_callback = self._choose
        self._wake = threading.Event()

    def _choose(self, handshake: ssl.SSLObject, name: str, _: ssl.SSLContext) -> None:
        # Called for every handshake, whether or not the client names a server.
        handshake.context = self._newest

    def look(self) -> bool:
        """Take files that have changed; return whether they are served now."""
        seen = _stamps(self._files)
        if seen == self._seen:
            return False
        before, self._seen = self._seen, seen
        try:
            context, facts = context_of(self._files), certificate_of(self._files)
        except InvalidConfig as error:
            log.error(
                "TLS goes on with the certificate it has; the new files are no use: %s", error
            )
            return False
        except Unavailable as error:
            # The password of the key is kept elsewhere: look again the next time.
            self._seen = before
            log.warning("TLS goes on with the certificate it has; the new one must wait: %s", error)
            return False
        self._newest = context
        log.info("TLS: new certificate from %s", self._files.cert)
        if wrong := complaint(facts, self._now_ms() / 1000):
            log.warning("TLS: the certificate in %s %s", self._files.cert, wrong)
        return True

    def watch(self) -> None:
        """Look from now on, in a thread: reading files must not delay requests."""
        threading.Thread(target=self._watch, name="riacho-tls", daemon=True).start()
        is_service = sys.stdin is None or not sys.stdin.isatty()
        if threading.current_thread() is threading.main_thread() and is_service:
            # At a terminal SIGHUP means that it was closed.
            signal.signal(signal.SIGHUP, lambda *_: self._wake.set())

    def _watch(self) -> None:
        while True:
            self._wake.wait(LOOKED_EVERY_S)
            self._wake.clear()
            self.look()


def _stamps(files: TlsFiles) -> list[tuple[int, ...] | None]:
    """Return what changes with each file, be it written, renamed or another target of a link."""
    return [_stamp(path) for path in files.paths]


def _stamp(path: Any) -> tuple[int, ...] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


_SERVING: Final[list[ssl.SSLContext]] = []
"""That of this process, once it serves."""


def serving_context(files: TlsFiles, *_: object) -> ssl.SSLContext:
    """Return the context of a process that serves; uvicorn calls this in each worker."""
    live = LiveContext(files, real_world().now_ms)
    live.watch()
    _SERVING[:] = [live.serving]
    return live.serving


def context_of_process() -> ssl.SSLContext | None:
    """Return the context that this process serves with; None: it serves without TLS."""
    return _SERVING[0] if _SERVING else None
