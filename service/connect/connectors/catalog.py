"""Every connector that can be configured, by the name of its class.

A connector is listed by the module that has its plugins, and imported when it is asked for: most
processes run none. A module of plugins imports no driver; `Plugin.make` does.
"""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Final

from service.connect.connectors.api import Plugin

_MODULES: Final[Sequence[str]] = (
    "datagen.plugins",
    "file_stream.plugins",
    "http.plugins",
    "jdbc.plugins",
    "mirror.plugin",
    "objects.plugin",
    "postgres.plugins",
)
"""Modules below this package; each has `PLUGINS`, a sequence of its `Plugin` values."""


@cache
def plugins() -> Sequence[Plugin]:
    """Return all plugins, in the order of the list above."""
    package = __name__.rpartition(".")[0]
    return [plugin for name in _MODULES for plugin in import_module(f"{package}.{name}").PLUGINS]


def plugin_of(class_name: str) -> Plugin | None:
    """Return the plugin with this class name or alias, whole or without its package.

    Kafka's short form leaves out the package, and `Connector` at the end.
    """
    return _by_name().get(class_name)


@cache
def _by_name() -> dict[str, Plugin]:
    found: dict[str, Plugin] = {}
    for plugin in plugins():
        for name in (plugin.class_name, *plugin.aliases):
            last = name.rpartition(".")[2]
            for form in (name, last, last.removesuffix("Connector")):
                if form:
                    found.setdefault(form, plugin)
    return found
