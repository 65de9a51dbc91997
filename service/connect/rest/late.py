"""Connect for the routes: nothing of it is imported before it is called."""

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.connect.rest.assembly import ConnectCalls
    from service.groups.coordinator import Coordinator
    from service.groups.offsets import Offsets
    from service.log.gateway import Gateway


class LateConnect:
    """The calls of Connect on a gateway, made when one is first needed."""

    def __init__(self, gateway: "Gateway", coordinator: "Coordinator", offsets: "Offsets") -> None:
        self._gateway = gateway
        self._coordinator = coordinator
        self._offsets = offsets

    @cached_property
    def calls(self) -> "ConnectCalls":
        from service.connect.rest.assembly import ConnectCalls

        return ConnectCalls(self._gateway, self._coordinator, self._offsets)
