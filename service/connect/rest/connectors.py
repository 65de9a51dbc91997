"""Calls that list, create, describe, change and delete connectors."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.connect.config.common import PRINCIPAL
from service.connect.config.validation import check_size, validate
from service.connect.connectors.api import Environment
from service.connect.rest import views
from service.connect.rest.answers import (
    ConnectQuery,
    answer,
    caller_in,
    connector_in,
    done,
    read_as,
    texts_of,
)
from service.connect.rest.bodies import ConfigBody, NewConnectorBody
from service.connect.rest.errors import ConnectError, bad_request, invalid
from service.connect.rest.plugins import CONFIG_BODY, known_plugin
from service.connect.rest.store import ConnectorStore
from service.connect.tasks.items import PAUSED, STARTED, STOPPED, ConnectorItem, RunHealth, afresh
from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller

NAME_BYTES_MAX: Final = 240
"""The group of a sink is `connect-` and its name, in at most 249 bytes."""

_NEW_BODY: Final = msgspec.json.Decoder(NewConnectorBody)

_INITIAL: Final[Mapping[str, str]] = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}


class ConnectorCalls:
    def __init__(self, gateway: Gateway, store: ConnectorStore, environment: Environment) -> None:
        self._gateway = gateway
        self._store = store
        self._environment = environment

    async def list_all(self, request: Request) -> Response:
        """List connectors."""
        caller = caller_in(request)
        found = [
            each
            for each in await self._store.all()
            if caller.allows(Operation.DESCRIBE, ResourceType.CONNECTOR, each.name)
        ]
        expand = ConnectQuery(request).texts("expand")
        if not expand:
            return answer([caller.outer_name(each.name) for each in found])
        return answer(
            {
                caller.outer_name(each.name): await self._expanded(caller, each, expand)
                for each in found
            }
        )

    async def _expanded(
        self, caller: Caller, connector: ConnectorItem, expand: list[str]
    ) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if "status" in expand:
            body["status"] = views.status(caller, connector, await self._store.tasks(connector))
        if "info" in expand:
            body["info"] = views.info(caller, connector)
        return body

    async def create(self, request: Request) -> Response:
        """Create a connector."""
        caller = caller_in(request)
        body = await read_as(request, self._gateway, _NEW_BODY)
        config = texts_of(body.config)
        outer = (body.name if body.name is not None else config.get("name", "")).strip()
        name = caller.inner_name(outer)
        caller.require(Operation.CREATE, ResourceType.CONNECTOR, name)
        initial = (body.initial_state or "RUNNING").strip().upper()
        if initial not in _INITIAL:
            raise bad_request(
                f"initial_state must be one of {', '.join(_INITIAL)}, not {body.initial_state!r}"
            )
        self._check(outer, config)
        created = await self._create(caller, name, config, _INITIAL[initial])
        return self._created(caller, created)

    async def describe(self, request: Request) -> Response:
        """Describe a connector."""
        connector = await self._store.read(connector_in(request))
        return answer(views.info(caller_in(request), connector))

    async def delete(self, request: Request) -> Response:
        """Delete a connector, its tasks and its positions."""
        name = connector_in(request)
        await self._store.delete(name)
        caller_in(request).changed(Operation.DELETE, ResourceType.CONNECTOR, name)
        return done(204)

    async def show_config(self, request: Request) -> Response:
        """Show the configuration of a connector."""
        return answer(views.config_of(await self._store.read(connector_in(request))))

    async def put_config(self, request: Request) -> Response:
        """Create a connector, or change its whole configuration."""
        caller, name = caller_in(request), connector_in(request)
        config = texts_of(await read_as(request, self._gateway, CONFIG_BODY))
        found = await self._store.find(name)
        outer = name.removeprefix(caller.name_prefix if found is None else found.name_prefix)
        self._check(outer, config)
        if found is not None:
            return answer(await self._changed(caller, name, lambda _: config))
        caller.require(Operation.CREATE, ResourceType.CONNECTOR, name)
        return self._created(caller, await self._create(caller, name, config, STARTED))

    async def patch_config(self, request: Request) -> Response:
        """Change some keys of the configuration of a connector; null removes one."""
        caller, name = caller_in(request), connector_in(request)
        body: ConfigBody = await read_as(request, self._gateway, CONFIG_BODY)
        new, gone = texts_of(body), {key for key, value in body.items() if value is None}

        def patched(connector: ConnectorItem) -> dict[str, str]:
            config = {k: v for k, v in connector.config.items() if k not in gone} | new
            self._check(name.removeprefix(connector.name_prefix), config)
            return config

        return answer(await self._changed(caller, name, patched))

    def _check(self, name: str, config: dict[str, str]) -> None:
        """Put the name into the configuration; raise 400 if anything is wrong."""
        if not name or not name.isprintable():
            raise bad_request(
                "the name of a connector must not be empty or have control characters"
            )
        if len(name.encode(errors="replace")) > NAME_BYTES_MAX:
            raise bad_request(f"the name of a connector has at most {NAME_BYTES_MAX} bytes")
        given = config.setdefault("name", name).strip()
        if given != name:
            raise bad_request(
                f"Connector name configuration ({given}) doesn't match connector name in the URL"
                f" ({name})"
            )
        if "connector.class" not in config:
            raise bad_request("Connector config contains no connector type: set connector.class")
        if (why := check_size(config)) is not None:
            raise bad_request(why)
        plugin = known_plugin(config["connector.class"])
        if errors := validate(plugin, config, self._environment).errors:
            raise invalid(errors)

    async def _create(
        self, caller: Caller, name: str, config: dict[str, str], target: str
    ) -> ConnectorItem:
        new = ConnectorItem(
            name=name,
            config=config,
            principal=_principal(caller, config, None),
            created_ms=self._store.world.now_ms(),
            target=target,
            name_prefix=caller.name_prefix,
        )
        await self._store.create(new)
        caller.changed(Operation.CREATE, ResourceType.CONNECTOR, name)
        return new

    def _created(self, caller: Caller, connector: ConnectorItem) -> Response:
        body = views.info(caller, connector)
        where = {"location": f"/connectors/{quote(body['name'], safe='')}"}
        return answer(body, 201, where)

    async def _changed(
        self, caller: Caller, name: str, config_of: Callable[[ConnectorItem], dict[str, str]]
    ) -> dict[str, Any]:
        """Give a connector another configuration, and return how it is shown."""

        def changed(found: ConnectorItem) -> ConnectorItem:
            config = config_of(found)
            principal = _principal(caller, config, found)
            if (config, principal) == (found.config, found.principal):
                # As in Kafka, this restarts what has failed.
                return msgspec.structs.replace(found, health=afresh(found.health))
            return msgspec.structs.replace(
                found,
                config=config,
                principal=principal,
                generation=found.generation + 1,
                health=RunHealth(),
            )

        connector = await self._store.change(name, changed)
        caller.changed(Operation.ALTER, ResourceType.CONNECTOR, name)
        return views.info(caller, connector)


def _principal(caller: Caller, config: Mapping[str, str], found: ConnectorItem | None) -> str:
    """Return whose rights a connector has after this caller has written its configuration.

    Nobody can borrow the rights of another: who changes a connector lends it its own, except for
    super users, who leave it those it has.
    """
    wanted = config.get(PRINCIPAL, "").strip()
    if wanted and wanted != caller.principal:
        if not wanted.startswith("User:"):
            raise invalid([f"{PRINCIPAL} must be like User:etl, not {wanted:.300}"])
        if not caller.is_super or caller.name_prefix:
            raise ConnectError(
                403, f"{PRINCIPAL}: only a super user may name another principal than its own"
            )
        return wanted
    if found is not None and not wanted and caller.is_super:
        return found.principal
    return caller.principal
