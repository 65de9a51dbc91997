"""The door of HTTP: before a route is served, who calls and whether they may.

The router asks it with every request, also for paths that no route has: without a credential, all
that can be learnt of a gateway is whether it runs.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from service.security.acls import CompiledAcls, Decision, Operation, ResourceType
from service.security.authenticating import Authenticator, peer_of
from service.security.caller import CALLER, Authenticated, Caller
from service.security.needs import Needs
from service.security.quotas.buckets import Quotas
from service.security.quotas.processor_time import Timed
from service.security.tenancy import IN_PATHS
from service.security.view import SecurityView
from storage.errors import QuotaExceeded, RiachoError, Unauthenticated

REQUEST_ID: Final = "riacho.request_id"
CLIENT_ID: Final = b"riacho-client-id"
CLIENT_ID_CHARS_MAX: Final = 249


class Records(Protocol):
    """Where refusals and administrative changes are recorded."""

    def unauthenticated(
        self, error: RiachoError, *, peer: str, request_id: str, path: str
    ) -> None: ...

    def refused(
        self,
        caller: Caller,
        operation: Operation,
        kind: ResourceType,
        name: str,
        decision: Decision,
    ) -> None: ...

    def changed(
        self, caller: Caller, operation: Operation, kind: ResourceType, name: str
    ) -> None: ...


class Door:
    """Lets a request in, with its caller in its scope, or raises the error that refuses it."""

    def __init__(
        self,
        authenticator: Authenticator,
        view: SecurityView,
        records: Records,
        quotas: Quotas,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._authenticator = authenticator
        self._view = view
        self._records = records
        self._quotas = quotas
        self._monotonic_s = monotonic_s

    async def enter(
        self, scope: Any, needs: Needs | None, parameters: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Return the parameters of the path with full names, once the caller may go on.

        `needs` are those of the route; None: there is no such route.
        """
        if needs is not None and needs.is_open:
            return parameters
        peer = peer_of(scope)
        request_id = str(scope.get(REQUEST_ID, ""))
        rules = await self._view.rules()
        try:
            identity = await self._authenticator.identify(scope, rules)
        except (Unauthenticated, QuotaExceeded) as error:
            path = scope["path"]
            self._records.unauthenticated(error, peer=peer, request_id=request_id, path=path)
            raise
        if identity.name_prefix:
            parameters = {
                name: identity.name_prefix + value if name in IN_PATHS else value
                for name, value in parameters.items()
            }
        caller = self._caller(scope, identity, rules.acls, peer, request_id)
        # A copy without the caller: a cycle would keep every request until memory is searched for
        # cycles, which costs more than all that is done here.
        shown = dict(scope)

        async def renewed() -> tuple[Authenticated, CompiledAcls]:
            new_rules = await self._view.rules()
            new = await self._authenticator.identify(shown, new_rules)
            if needs is not None and new_rules is not rules:
                fresh = self._caller(shown, new, new_rules.acls, peer, request_id)
                needs.check(fresh, parameters)
            return new, new_rules.acls

        caller.renewed_by(renewed)
        scope[CALLER] = caller
        if needs is not None:
            needs.check(caller, parameters)
        return parameters

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that may go on, and count the time that it takes if that is limited."""
        caller: Caller | None = scope.get(CALLER)
        limits = None if caller is None else self._quotas.limits_of(caller)
        if caller is None or limits is None or limits.time is None:
            await app(scope, receive, send)
            return
        await self._quotas.admit_time(caller)
        report = partial(self._quotas.charge_time, caller)
        await Timed(app(scope, receive, send), self._monotonic_s, report)

    def _caller(
        self, scope: Any, identity: Authenticated, acls: CompiledAcls, peer: str, request_id: str
    ) -> Caller:
        return Caller(
            identity,
            acls,
            peer,
            refused=self._records.refused,
            changed=self._records.changed,
            request_id=request_id,
            client_id=_client_id(scope),
            quotas=self._quotas,
        )


def _client_id(scope: Mapping[str, Any]) -> str:
    for name, value in scope["headers"]:
        if name == CLIENT_ID:
            return str(value[:CLIENT_ID_CHARS_MAX].decode("latin-1"))
    return ""
