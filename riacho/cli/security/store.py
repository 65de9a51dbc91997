"""API keys that are made in the stores: who owns those is root.

No gateway needs to run, and one that runs on the same stores accepts the key within 3 seconds.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from riacho.cli.output import bad_usage

if TYPE_CHECKING:
    from service.routes.bodies.security import KeyWithSecret, NewKeyBody
    from service.settings import Settings

OWNER = "owner of the stores"
"""Who has made such a key, in its description."""


def create_key(settings: "Settings", body: dict[str, Any]) -> dict[str, Any]:
    """Make a key; `body` and the result are as with POST /v1/keys."""
    import msgspec

    from service.routes.bodies.security import NewKeyBody

    try:
        asked = msgspec.convert(body, NewKeyBody)
    except msgspec.ValidationError as error:
        raise bad_usage(str(error), "keys create") from None
    made: dict[str, Any] = msgspec.to_builtins(asyncio.run(_create(settings, asked)))
    return made


async def _create(settings: "Settings", asked: "NewKeyBody") -> "KeyWithSecret":
    from service.process.stores import open_table
    from service.routes.bodies.security import key_with_secret
    from service.security.api_keys.credentials import ApiKeys, NewKey
    from service.world.clock import real_world

    world = real_world()
    table = open_table(settings, world)
    try:
        new = NewKey(
            principal=str(asked.principal),
            expires_ms=asked.expires_ms,
            scope=asked.scope,
            name_prefix=asked.name_prefix,
            is_super=asked.super,
            created_by=OWNER,
            description=asked.description,
        )
        key, text = await ApiKeys(table, world).create(new)
        return key_with_secret(key, text)
    finally:
        await table.close()
