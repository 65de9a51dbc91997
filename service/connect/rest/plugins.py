"""Calls about the connectors that can be configured."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.connect.config.validation import keys_body, part_keys_body, validate
from service.connect.connectors.api import Environment, Plugin
from service.connect.connectors.catalog import plugin_of, plugins
from service.connect.converters.choice import CONVERTERS, SIMPLE_HEADERS, ConverterKind
from service.connect.rest.answers import ConnectQuery, answer, read_as, texts_of
from service.connect.rest.bodies import ConfigBody
from service.connect.rest.errors import ConnectError, bad_request
from service.connect.transforms.choice import TRANSFORMS
from service.connect.transforms.kinds import PredicateKind, TransformKind
from service.connect.transforms.predicates import PREDICATES
from service.log.gateway import Gateway
from service.process.version import VERSION

CONFIG_BODY: Final = msgspec.json.Decoder(ConfigBody)


class PluginCalls:
    def __init__(self, gateway: Gateway, environment: Environment) -> None:
        self._gateway = gateway
        self._environment = environment

    async def list_plugins(self, request: Request) -> Response:
        """List the connectors that can be configured."""
        found = [
            {"class": each.class_name, "type": each.kind.value, "version": each.version}
            for each in plugins()
        ]
        if not ConnectQuery(request).flag("connectorsOnly", default=True):
            found += _parts()
        return answer(found)

    async def show_keys(self, request: Request) -> Response:
        """Show the keys of a connector, a converter, a transform or a predicate."""
        name = request.path_params["plugin"]
        plugin = plugin_of(name)
        if plugin is not None:
            return answer(keys_body(plugin))
        for kind in _part_kinds():
            if name in (kind.class_name, kind.short_name):
                return answer(part_keys_body(kind.keys))
        raise ConnectError(404, f"Unknown plugin {name}.")

    async def validate(self, request: Request) -> Response:
        """Say what is wrong with a configuration, without creating a connector."""
        config = texts_of(await read_as(request, self._gateway, CONFIG_BODY))
        name = request.path_params["plugin"]
        plugin = known_plugin(name)
        given = config.setdefault("connector.class", name)
        if plugin_of(given) is not plugin:
            raise bad_request(f"Included connector type {given} does not match request type {name}")
        return answer(validate(plugin, config, self._environment).body())


def known_plugin(name: str) -> Plugin:
    """Return the plugin of a class name; raise 400 if there is none."""
    plugin = plugin_of(name)
    if plugin is None:
        names = ", ".join(each.class_name for each in plugins())
        raise bad_request(
            "Failed to find any class that implements Connector and which name matches"
            f" {name:.300}, available connectors are: {names}"
        )
    return plugin


def _part_kinds() -> list[ConverterKind | TransformKind | PredicateKind]:
    return [*CONVERTERS, *TRANSFORMS, *PREDICATES]


def _parts() -> list[dict[str, str]]:
    converters = [each.class_name for each in CONVERTERS]
    of_kinds = {
        "converter": converters,
        "header_converter": [SIMPLE_HEADERS, *converters],
        "predicate": [each.class_name for each in PREDICATES],
        "transformation": [each.class_name for each in TRANSFORMS],
    }
    return [
        {"class": name, "type": kind, "version": VERSION}
        for kind, names in of_kinds.items()
        for name in names
    ]
