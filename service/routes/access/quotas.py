"""Routes about quotas. A route translates; it does not decide."""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.http.json_requests import read_json
from service.http.requests import JSON, Query
from service.log.gateway import Gateway
from service.routes.bodies.quotas import QuotaChange, QuotaList, quota_info
from service.security.acls import Operation, ResourceType
from service.security.caller import caller_of
from service.security.quotas.items import QuotaItems, parse_entity
from service.security.quotas.limits import QuotaEntity
from service.security.view import SecurityView
from storage.errors import InvalidRequest

_CHANGE: Final = msgspec.json.Decoder(QuotaChange)


class QuotaRoutes:
    def __init__(self, gateway: Gateway, view: SecurityView | None) -> None:
        """Without security there is no `view`, but quotas can be prepared."""
        self._gateway = gateway
        self._view = view
        self._items = QuotaItems(gateway.metadata, gateway.world)

    async def list_quotas(self, request: Request) -> Response:
        """List quotas: all, or those of a user or a client."""
        query = Query(request)
        user, client_id = query.text("user"), query.text("client_id")
        found = [
            quota_info(entity, limits)
            for entity, limits in sorted((await self._items.all()).items(), key=_order)
            if user in (None, entity.user, f"User:{entity.user}")
            and client_id in (None, entity.client_id)
        ]
        return _answer(QuotaList(found))

    async def change_quota(self, request: Request) -> Response:
        """Set or remove limits of a user, a client, or both; others stay as they are."""
        Query(request)
        body = await read_json(request, self._gateway, _CHANGE)
        entity = parse_entity(body.user, body.client_id)
        changes = body.limits()
        if not changes:
            raise InvalidRequest("give a limit to set, like producer_byte_rate, or null to remove")
        limits = await self._items.change(entity, changes)
        if self._view is not None:
            self._view.expire()
        set_now = ", ".join(f"{kind}={rate}" for kind, rate in changes.items())
        what = f"quota of user {entity.user}, client {entity.client_id}: {set_now}"
        caller_of(request.scope).changed(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, what)
        return _answer(quota_info(entity, limits))


def _order(quota: tuple[QuotaEntity, object]) -> tuple[str, str]:
    return quota[0].user or "", quota[0].client_id or ""


def _answer(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type=JSON)
