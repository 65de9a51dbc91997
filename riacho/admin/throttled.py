"""Calls that wait when a quota asks for it, as Kafka's administrative client does.

A status of 429 says that nothing was done, so any call may be repeated after that.
"""

import asyncio
import time
from typing import Any, Final

from riacho.errors import retry_after_s_of
from riacho.http.gateway import Gateway, Reply
from storage.errors import Overloaded

THROTTLED_S_MAX: Final = 30.0
"""How long a call is repeated. Longer waits are an error, which says how long."""


class ThrottledGateway(Gateway):
    async def request(self, method: str, path: str, **rest: Any) -> Reply:
        """Return the reply as `Gateway.request` does, later if a quota asks for it."""
        give_up_s = time.monotonic() + THROTTLED_S_MAX
        while True:
            try:
                return await super().request(method, path, **rest)
            except Overloaded as error:
                wait_s = retry_after_s_of(error)
                is_quota = getattr(error, "status", None) == 429 and wait_s > 0
                if not is_quota or time.monotonic() + wait_s > give_up_s:
                    raise
            await asyncio.sleep(wait_s)
