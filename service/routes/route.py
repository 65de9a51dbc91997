"""What a row of the table of routes says, and the handlers that the rows name."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from service.connect.rest.late import LateConnect
from service.controller.live_gateways import LiveGateways
from service.http.foreign import ForeignApi
from service.http.metrics import Metrics
from service.http.requests import JSON
from service.log.gateway import Gateway
from service.registry.edge.late import LateSchemas
from service.routes.access.quotas import QuotaRoutes
from service.routes.access.security import SecurityRoutes
from service.routes.fetch import FetchRoutes
from service.routes.groups import GroupRoutes
from service.routes.produce import ProduceRoutes
from service.routes.segments import SegmentRoutes
from service.routes.transactions import TransactionRoutes
from service.security.needs import Needs
from storage.errors import RiachoError

if TYPE_CHECKING:
    from service.connect.rest.assembly import ConnectCalls
    from service.registry.assembly import Registry
    from service.routes.cluster import ClusterRoutes
    from service.routes.delete import DeleteRoutes
    from service.routes.topics import TopicRoutes

Errors: TypeAlias = tuple[type[RiachoError], ...]


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """The objects whose methods serve the routes."""

    gateway: Gateway
    registry: LiveGateways
    metrics: Metrics
    produce: ProduceRoutes
    fetch: FetchRoutes
    groups: GroupRoutes
    transactions: TransactionRoutes
    security: SecurityRoutes
    quotas: QuotaRoutes
    segments: SegmentRoutes
    late_schemas: LateSchemas
    late_connect: LateConnect

    @property
    def schemas(self) -> "Registry":
        return self.late_schemas.registry

    @property
    def connect(self) -> "ConnectCalls":
        return self.late_connect.calls

    # These are served by FastAPI, so they are imported by the first call that needs it.

    @cached_property
    def topics(self) -> "TopicRoutes":
        from service.routes.topics import TopicRoutes

        return TopicRoutes(self.gateway)

    @cached_property
    def delete(self) -> "DeleteRoutes":
        from service.routes.delete import DeleteRoutes

        return DeleteRoutes(self.gateway)

    @cached_property
    def cluster(self) -> "ClusterRoutes":
        from service.routes.cluster import ClusterRoutes

        return ClusterRoutes(self.gateway, self.registry, self.metrics)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a route."""

    name: str
    type: Any
    """As msgspec knows types."""
    about: str = ""
    place: Literal["path", "query", "header"] = "query"
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error."""

    type: Any = None
    """As msgspec knows types; None: it has no body, or FastAPI knows its model."""
    about: str = "Done"
    media_types: Sequence[str] = (JSON,)
    """The first is that of `type`."""
    headers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestBody:
    """The body of a request."""

    type: Any
    """As msgspec knows types."""
    media_types: Sequence[str] = (JSON,)
    """The first is that of `type`."""
    is_required: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """Everything that is decided about a route outside of its handler."""

    call: str
    """Its method and path."""
    handler: Callable[[Handlers], Callable[..., Awaitable[Any]]]
    """A method that takes a request and returns a response, or what FastAPI makes of both."""
    summary: str
    needs: Needs = field(kw_only=True)
    """What the caller must be allowed to do."""
    errors: Errors = field(kw_only=True)
    """All that it may answer with; besides, an unexpected error if there are any."""
    parameters: Sequence[Parameter] = ()
    body: RequestBody | None = None
    """None: it has none, or FastAPI knows its model."""
    answers: Mapping[int, Answer] = field(default_factory=lambda: {200: Answer()})
    by_fastapi: bool = False
    """Served by FastAPI, which validates what the handler's annotations say; else directly."""
    api: ForeignApi | None = None
    """Of which API of others this is a call: with errors of its form, also below its path."""

    @property
    def method(self) -> str:
        return self.call.split(" ")[0]

    @property
    def path(self) -> str:
        return self.call.split(" ")[1]

    @property
    def query(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.parameters if each.place == "query")
