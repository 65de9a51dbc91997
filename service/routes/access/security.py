"""Routes about keys, ACLs, and who the caller is. A route translates; it does not decide."""

from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from service.http.json_requests import read_json
from service.http.requests import JSON, Query
from service.log.gateway import Gateway
from service.routes.bodies.security import (
    AclList,
    Checked,
    KeyInfo,
    KeyList,
    NewAcls,
    NewKeyBody,
    RotateBody,
    WhoAmI,
    key_info,
    key_with_secret,
)
from service.security.acl_items import AclItems
from service.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    Acl,
    AclFilter,
    CompiledAcls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    described,
)
from service.security.api_keys.credentials import ApiKey, ApiKeys, NewKey
from service.security.api_keys.minting import may_manage, minted
from service.security.api_keys.scopes import KeyScope
from service.security.caller import Caller, caller_of
from service.security.view import SecurityView
from storage.errors import ClusterUnauthorized, InvalidRequest

T = TypeVar("T")

ANY: Final = "ANY"
MATCH: Final = "MATCH"

_NEW_KEY: Final = msgspec.json.Decoder(NewKeyBody)
_ROTATE: Final = msgspec.json.Decoder(RotateBody)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


class SecurityRoutes:
    def __init__(self, gateway: Gateway, view: SecurityView | None) -> None:
        """Without security there is no `view`, but keys and ACLs can be prepared."""
        self._gateway = gateway
        self._view = view
        self._keys = ApiKeys(gateway.metadata, gateway.world)
        self._acls = AclItems(gateway.metadata, gateway.world)
        self._super_users = gateway.settings.super_user_names

    async def create_key(self, request: Request) -> Response:
        """Make an API key. This answer is the only one that shows it."""
        Query(request)
        body = await read_json(request, self._gateway, _NEW_KEY)
        caller = caller_of(request.scope)
        asked = NewKey(
            principal=caller.principal if body.principal is msgspec.UNSET else body.principal,
            expires_ms=body.expires_ms,
            scope=_full(caller, body.scope),
            name_prefix=body.name_prefix,
            is_super=body.super,
            description=body.description,
            scram=body.scram,
        )
        key, text = await self._keys.create(minted(caller, asked, self._super_users))
        self._noted(caller, Operation.CREATE, f"key {key.key_id} of {key.principal}")
        return _answer(key_with_secret(_shown(caller, key), text), HTTPStatus.CREATED)

    async def list_keys(self, request: Request) -> Response:
        """List the keys that the caller may manage, or all for those who may DESCRIBE the cluster.

        Nothing shows a secret.
        """
        Query(request)
        caller = caller_of(request.scope)
        sees_all = caller.allows(Operation.DESCRIBE, ResourceType.CLUSTER)
        found: list[KeyInfo] = [
            key_info(_shown(caller, key))
            for key in await self._keys.all()
            if sees_all or may_manage(caller, key, self._super_users)
        ]
        return _answer(KeyList(found))

    async def describe_key(self, request: Request) -> Response:
        """Return a key without its secret."""
        Query(request)
        caller = caller_of(request.scope)
        key = await self._managed(caller, request, Operation.DESCRIBE)
        return _answer(key_info(_shown(caller, key)))

    async def rotate_key(self, request: Request) -> Response:
        """Give a key a new secret, which only this answer shows; the old one works on for a while.

        Repeat the call if its answer is lost: the key then gets another secret.
        """
        Query(request)
        body = await read_json(request, self._gateway, _ROTATE)
        caller = caller_of(request.scope)
        managed = await self._managed(caller, request, Operation.ALTER)
        key, text = await self._keys.rotate(managed.key_id, body.overlap_ms)
        self._noted(caller, Operation.ALTER, f"key {key.key_id} of {key.principal}")
        return _answer(key_with_secret(_shown(caller, key), text))

    async def revoke_key(self, request: Request) -> Response:
        """Revoke a key; every gateway refuses it within 5 seconds."""
        Query(request)
        caller = caller_of(request.scope)
        managed = await self._managed(caller, request, Operation.ALTER)
        key = await self._keys.revoke(managed.key_id)
        self._noted(caller, Operation.DELETE, f"key {key.key_id} of {key.principal}")
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _managed(self, caller: Caller, request: Request, operation: Operation) -> ApiKey:
        """Return the key that the path names, if the caller may manage it."""
        key = await self._keys.find(str(request.path_params["key"]))
        if key is None or not may_manage(caller, key, self._super_users):
            # Others cannot learn whether there is such a key.
            caller.require(operation, ResourceType.CLUSTER)
            if key is not None and operation is not Operation.DESCRIBE:
                raise ClusterUnauthorized(
                    "this key may do more than your credential, which cannot change it"
                )
        return key or await self._keys.existing(str(request.path_params["key"]))

    async def list_acls(self, request: Request) -> Response:
        """List ACLs that match a filter."""
        wanted = _filter(Query(request))
        return _answer(AclList([acl for acl in await self._acls.all() if wanted.matches(acl)]))

    async def create_acls(self, request: Request) -> Response:
        """Add one ACL, or several at once; those that are there already stay as they are."""
        Query(request)
        acls = _acls(await read_json(request, self._gateway, _OBJECT))
        await self._acls.add(acls)
        caller = caller_of(request.scope)
        for acl in acls:
            self._noted(caller, Operation.CREATE, _words(acl))
        return _answer(AclList(acls), HTTPStatus.CREATED)

    async def delete_acls(self, request: Request) -> Response:
        """Delete the ACLs that match a filter, and return them."""
        wanted = _filter(Query(request))
        if not request.scope["query_string"]:
            raise InvalidRequest(
                "query: say which, like principal=User:ana; resource_type=ANY deletes all of them"
            )
        found = [acl for acl in await self._acls.all() if wanted.matches(acl)]
        await self._acls.remove(found)
        caller = caller_of(request.scope)
        for acl in found:
            self._noted(caller, Operation.DELETE, _words(acl))
        return _answer(AclList(found))

    async def check_acl(self, request: Request) -> Response:
        """Say whether a principal may do something, and which ACL decides it."""
        query = Query(request)
        principal = _required(query, "principal")
        kind = _converted(_required(query, "resource_type"), ResourceType, "query: resource_type")
        operation = _converted(_required(query, "operation"), Operation, "query: operation")
        name = query.text("resource_name")
        if kind is ResourceType.CLUSTER:
            name = name or CLUSTER_NAME
        if name is None:
            raise InvalidRequest("query: resource_name is missing")
        if principal in self._super_users:
            return _answer(Checked(True, "a super user may do everything", None))
        acls = CompiledAcls(await self._acls.all())
        host = query.text("host") or ANY_HOST
        decision = acls.decide(principal, host, operation, kind, name)
        return _answer(Checked(decision.allowed, decision.why, decision.acl))

    async def who_am_i(self, request: Request) -> Response:
        """Return who the caller is, as its credential shows."""
        Query(request)
        caller = caller_of(request.scope)
        own = caller.identity
        return _answer(
            WhoAmI(
                principal=own.principal,
                credential=own.credential_id,
                door=own.door,
                super=own.is_super,
                scope=_outer(caller, own.scope),
                name_prefix=own.name_prefix,
                expires_ms=own.expires_ms,
            )
        )

    def _noted(self, caller: Caller, operation: Operation, what: str) -> None:
        """Record a change of keys or ACLs; this gateway obeys it with the next request."""
        if self._view is not None:
            self._view.expire()
        caller.changed(operation, ResourceType.CLUSTER, what)


def _filter(query: Query) -> AclFilter:
    """Return the filter of a query; ANY says the same as to leave a parameter out."""
    pattern = query.text("pattern_type")
    return AclFilter(
        resource_type=_choice(query, "resource_type", ResourceType),
        resource_name=query.text("resource_name"),
        pattern_type=None if pattern == MATCH else _choice(query, "pattern_type", PatternType),
        matches_names=pattern == MATCH,
        principal=query.text("principal"),
        host=query.text("host"),
        operation=_choice(query, "operation", Operation),
        permission=_choice(query, "permission", Permission),
    )


def _choice(query: Query, name: str, kind: type[T]) -> T | None:
    text = query.text(name)
    return None if text in (None, ANY) else _converted(text, kind, f"query: {name}")


def _acls(body: dict[str, Any]) -> list[Acl]:
    """Return the ACLs of a body: it is one, or has several."""
    if "acls" in body:
        return _converted(body, NewAcls, "body").acls
    return [_converted(body, Acl, "body")]


def _required(query: Query, name: str) -> str:
    text = query.text(name)
    if not text:
        raise InvalidRequest(f"query: {name} is missing")
    return text


def _converted(value: object, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{place}: {error}") from None


def _full(caller: Caller, scope: KeyScope | None) -> KeyScope | None:
    """Return the scope with full names."""
    return scope.renamed(caller.inner_name) if scope is not None and caller.name_prefix else scope


def _outer(caller: Caller, scope: KeyScope | None) -> KeyScope | None:
    """Return the scope with names as the caller knows them."""
    return scope.renamed(caller.outer_name) if scope is not None and caller.name_prefix else scope


def _shown(caller: Caller, key: ApiKey) -> ApiKey:
    """Return the key with names as the caller knows them."""
    prefix = caller.outer_name(key.name_prefix)
    return replace(key, scope=_outer(caller, key.scope), name_prefix=prefix)


def _words(acl: Acl) -> str:
    return f"acl {acl.permission} {acl.operation} on {described(acl)} from {acl.host}"


def _answer(body: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type=JSON)
