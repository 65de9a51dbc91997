"""The calls of Connect, connected."""

from service.connect.connectors.environment import environment_of
from service.connect.rest.connectors import ConnectorCalls
from service.connect.rest.loggers import WorkerCalls
from service.connect.rest.offsets import OffsetCalls
from service.connect.rest.plugins import PluginCalls
from service.connect.rest.states import StateCalls
from service.connect.rest.store import ConnectorStore
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.log.gateway import Gateway


class ConnectCalls:
    """All calls of Connect on one gateway. What they write, runners obey, wherever they are."""

    def __init__(self, gateway: Gateway, coordinator: Coordinator, offsets: Offsets) -> None:
        environment = environment_of(gateway.settings, gateway.world)
        store = ConnectorStore(gateway.metadata, coordinator, gateway.world)
        self.connectors = ConnectorCalls(gateway, store, environment)
        self.states = StateCalls(store)
        self.offsets = OffsetCalls(gateway, store, offsets)
        self.plugins = PluginCalls(gateway, environment)
        self.worker = WorkerCalls(gateway)
