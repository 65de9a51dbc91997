"""The door of HTTP: before a route is served, who calls and whether they may.

The router asks it with every request, also for paths that no route has: without a credential, all
that can be learnt of a gateway is whether it runs.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from service.security.acls import CompiledAcls, Decision, Operation, ResourceType
from service.security.authenticating import IDENTITY, Authenticator, peer_of
from service.security.caller import CALLER, Authenticated, Caller
from service.security.needs import Needs
from service.security.quotas.buckets import Quotas
from service.security.quotas.processor_time import Timed
from service.security.tenancy import IN_PATHS
from service.security.view import Rules, SecurityView
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
        rules = self._view.fresh_rules() or await self._view.rules()
        told = _Told(scope["headers"])
        try:
            identity = self._remembered(scope, told, rules) or (
                await self._authenticator.identify(scope, rules)
            )
        except (Unauthenticated, QuotaExceeded) as error:
            path = scope["path"]
            self._records.unauthenticated(error, peer=peer, request_id=request_id, path=path)
            raise
        if identity.name_prefix:
            parameters = {
                name: identity.name_prefix + value if name in IN_PATHS else value
                for name, value in parameters.items()
            }
        caller = self._caller(told, identity, rules.acls, peer, request_id)
        # A copy without the caller: a cycle would keep every request until memory is searched for
        # cycles, which costs more than all that is done here.
        shown = dict(scope)

        async def renewed() -> tuple[Authenticated, CompiledAcls]:
            new_rules = await self._view.rules()
            new = await self._authenticator.identify(shown, new_rules)
            if needs is not None and new_rules is not rules:
                fresh = self._caller(told, new, new_rules.acls, peer, request_id)
                needs.check(fresh, parameters)
            return new, new_rules.acls

        caller.renewed_by(renewed)
        scope[CALLER] = caller
        if needs is not None:
            needs.check(caller, parameters)
        return parameters

    def _remembered(
        self, scope: Mapping[str, Any], told: "_Told", rules: Rules
    ) -> Authenticated | None:
        """Return who calls without looking anything up; None: that takes more."""
        if len(told.credentials) != 1 or IDENTITY in scope:
            return None
        return self._authenticator.remembered(told.credentials[0], rules)

    def counts_time_of(self, scope: Scope) -> bool:
        """Whether the time that a request takes is limited."""
        caller: Caller | None = scope.get(CALLER)
        limits = None if caller is None else self._quotas.limits_of(caller)
        return limits is not None and limits.time is not None

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose time is limited, and count it."""
        caller: Caller = scope[CALLER]
        await self._quotas.admit_time(caller)
        report = partial(self._quotas.charge_time, caller)
        await Timed(app(scope, receive, send), self._monotonic_s, report)

    def _caller(
        self, told: "_Told", identity: Authenticated, acls: CompiledAcls, peer: str, request_id: str
    ) -> Caller:
        return Caller(
            identity,
            acls,
            peer,
            refused=self._records.refused,
            changed=self._records.changed,
            request_id=request_id,
            client_id=told.client_id,
            quotas=self._quotas,
        )


class _Told:
    """What headers say of the caller."""

    __slots__ = ("client_id", "credentials")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        self.credentials: list[bytes] = []
        self.client_id = ""
        for name, value in headers:
            if name == b"authorization":
                self.credentials.append(value)
            elif name == CLIENT_ID and not self.client_id:
                self.client_id = value[:CLIENT_ID_CHARS_MAX].decode("latin-1")
