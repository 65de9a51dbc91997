"""DescribeClientQuotas and AlterClientQuotas, on the quotas of all doors."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

from service.kafka.call import KafkaCall
from service.kafka.handlers.admin.answers import Judged, KafkaRefusal, repeated
from service.kafka.parts import Parts
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.users import (
    AlterClientQuotasEntityData,
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    ComponentData,
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
    ValueData,
)
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller
from service.security.quotas.items import QuotaItems, parse_entity
from service.security.quotas.limits import DEFAULT, QuotaEntity, QuotaKind, QuotaLimits
from storage.tasks import in_turns

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

EXACT, BY_DEFAULT, ANY = 0, 1, 2
"""How a component of a filter matches."""

RATE_MAX: Final = 1e15


class QuotaAdmin:
    def __init__(self, parts: Parts) -> None:
        self._security = parts.security
        self._items = QuotaItems(parts.gateway.metadata, parts.gateway.world)

    async def describe(
        self, call: KafkaCall, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        with Judged(call.caller) as judged:
            call.caller.require(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
            _check_components(request.components)
            quotas = await self._items.all()
            return DescribeClientQuotasResponse(
                entries=[
                    _shown(entity, limits)
                    for entity, limits in quotas.items()
                    if _matches(entity, request)
                ]
            )
        return DescribeClientQuotasResponse(
            error_code=judged.code, error_message=judged.text, entries=None
        )

    async def alter(
        self, call: KafkaCall, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        response = AlterClientQuotasResponse()
        async for entry in in_turns(request.entries):
            with Judged(call.caller) as judged:
                call.caller.require(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
                await self._alter(call.caller, entry, dry_run=request.validate_only)
            response.entries.append(
                AlterClientQuotasResponseEntryData(
                    error_code=judged.code,
                    error_message=judged.text,
                    entity=[
                        AlterClientQuotasEntityData(
                            entity_type=each.entity_type, entity_name=each.entity_name
                        )
                        for each in entry.entity
                    ],
                )
            )
        return response

    async def _alter(
        self, caller: Caller, entry: AlterClientQuotasRequestEntryData, *, dry_run: bool
    ) -> None:
        entity = _entity(entry.entity)
        if repeated(op.key for op in entry.ops):
            raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "a quota is named twice")
        changes = {_kind(op): None if op.remove else _rate(op) for op in entry.ops}
        if dry_run or not changes:
            return
        await self._items.change(entity, changes)
        if self._security is not None:
            self._security.view.expire()
        set_now = ", ".join(f"{kind}={rate}" for kind, rate in changes.items())
        what = f"quota of user {entity.user}, client {entity.client_id}: {set_now}"
        caller.changed(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, what)


def _entity(parts: Sequence[AlterClientQuotasEntityData]) -> QuotaEntity:
    types = [part.entity_type for part in parts]
    _check_types(types)
    if IP in types:
        raise KafkaRefusal(
            ErrorCode.INVALID_REQUEST,
            "there are no quotas of addresses here; set them for users and client ids",
        )
    for part in parts:
        if part.entity_name == DEFAULT:
            raise KafkaRefusal(
                ErrorCode.INVALID_REQUEST, f"{DEFAULT!r} is no name: the default has none"
            )
    names = {p.entity_type: DEFAULT if p.entity_name is None else p.entity_name for p in parts}
    return parse_entity(names.get(USER), names.get(CLIENT_ID))


def _check_types(types: Sequence[str]) -> None:
    unknown = set(types) - {USER, CLIENT_ID, IP}
    if unknown:
        raise KafkaRefusal(
            ErrorCode.INVALID_REQUEST,
            f"there are no quotas for {min(unknown)[:100]!r}, only for {USER} and {CLIENT_ID}",
        )
    if repeated(types):
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "a type of entity is named twice")
    if IP in types and len(types) > 1:
        raise KafkaRefusal(ErrorCode.INVALID_REQUEST, "ip stands alone")


def _kind(op: OpData) -> QuotaKind:
    try:
        return QuotaKind(op.key)
    except ValueError:
        known = ", ".join(QuotaKind)
        raise KafkaRefusal(
            ErrorCode.INVALID_REQUEST, f"there is no quota {op.key[:100]!r}; there are {known}"
        ) from None


def _rate(op: OpData) -> float:
    if not (math.isfinite(op.value) and 0 < op.value <= RATE_MAX):
        raise KafkaRefusal(
            ErrorCode.INVALID_REQUEST, f"{op.key} must be more than 0 and at most {RATE_MAX:g}"
        )
    return op.value


def _check_components(components: Sequence[ComponentData]) -> None:
    _check_types([each.entity_type for each in components])
    for each in components:
        if each.match_type not in (EXACT, BY_DEFAULT, ANY):
            raise KafkaRefusal(ErrorCode.INVALID_REQUEST, f"there is no match {each.match_type}")
        if (each.match is None) == (each.match_type == EXACT):
            raise KafkaRefusal(
                ErrorCode.INVALID_REQUEST, f"{each.entity_type}: an exact match alone has a name"
            )


def _names(entity: QuotaEntity) -> Mapping[str, str]:
    """Return the parts of an entity, by type."""
    both = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {kind: name for kind, name in both.items() if name is not None}


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    names = _names(entity)
    if request.strict and len(names) != len(request.components):
        return False
    return all(
        each.entity_type in names and _is_meant(names[each.entity_type], each)
        for each in request.components
    )


def _is_meant(name: str, component: ComponentData) -> bool:
    if component.match_type == ANY:
        return True
    return name == (DEFAULT if component.match_type == BY_DEFAULT else component.match)


def _shown(entity: QuotaEntity, limits: QuotaLimits) -> DescribeClientQuotasEntryData:
    return DescribeClientQuotasEntryData(
        entity=[
            DescribeClientQuotasEntityData(
                entity_type=kind, entity_name=None if name == DEFAULT else name
            )
            for kind, name in _names(entity).items()
        ],
        values=[
            ValueData(key=kind, value=rate)
            for kind in QuotaKind
            if (rate := limits.of(kind)) is not None
        ],
    )
