"""Which handler answers which API: the tables of all areas, merged.

An area is a module with `handlers(parts)`. The listener answers ApiVersions, SaslHandshake and
SaslAuthenticate itself, and advertises exactly those and what this table serves.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from service.kafka.call import Handler
from service.kafka.handlers.admin import table as admin
from service.kafka.handlers.data import table as data
from service.kafka.handlers.groups import classic as classic_groups
from service.kafka.handlers.groups import native
from service.kafka.handlers.transactions import table as transactions
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api

Area: TypeAlias = Callable[[Parts], dict[int, Handler]]

AREAS: Final[tuple[Area, ...]] = (
    admin.handlers,
    data.handlers,
    classic_groups.handlers,
    native.handlers,
    transactions.handlers,
)
"""The `handlers` of each area."""


def handlers(parts: Parts) -> dict[int, Handler]:
    """Return the handler of every API that is served, by its key."""
    table: dict[int, Handler] = {}
    for area in AREAS:
        for key, handler in area(parts).items():
            assert key not in table, f"two handlers for {Api(key).name}"
            table[key] = handler
    return table
