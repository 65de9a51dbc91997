"""moto's server, one request at a time: `python -m tests.storage.helpers.moto_in_turns -p PORT`.

It answers each request in a thread, and looks at a condition and writes in two steps. So two puts
that race, each only if the object is not there, may both win, which S3 never lets happen.
"""

import threading
from collections.abc import Iterable
from typing import Any

from moto import server


class InTurns(server.DomainDispatcherApplication):
    """What moto serves, behind a lock."""

    _turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._turn:
            return list(super().__call__(environ, start_response))


if __name__ == "__main__":
    server.DomainDispatcherApplication = InTurns  # type: ignore[misc]
    server.main()
