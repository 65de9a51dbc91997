"""moto's server, one request at a time: `python -m tests.storage.helpers.moto_in_turns -p PORT`.

moto answers each request in a thread, and checks a condition and writes in two steps. So two
conditional puts of the same object may both succeed, which S3 never allows.
"""

import threading
from collections.abc import Iterable
from typing import Any

from moto import server


class InTurns(server.DomainDispatcherApplication):
    """moto's application behind a lock."""

    _turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._turn:
            return list(super().__call__(environ, start_response))


if __name__ == "__main__":
    server.DomainDispatcherApplication = InTurns  # type: ignore[misc]
    server.main()
