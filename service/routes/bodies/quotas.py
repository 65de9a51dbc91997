"""Bodies of the routes about quotas."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.security.quotas.items import NAME_CHARS_MAX
from service.security.quotas.limits import QuotaEntity, QuotaKind, QuotaLimits, Rate

_Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_CHARS_MAX,
        description="<default> is for all that have no quota of their own",
    ),
]


class QuotaChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A user, a client, or both, and the limits to set; null removes one."""

    user: Annotated[_Name | None, Meta(description="like ana, or User:ana")] = None
    client_id: Annotated[_Name | None, Meta(description="header Riacho-Client-Id")] = None
    producer_byte_rate: Annotated[
        Rate | UnsetType | None, Meta(description="bytes of bodies produced, a second")
    ] = UNSET
    consumer_byte_rate: Annotated[
        Rate | UnsetType | None, Meta(description="bytes of bodies fetched, a second")
    ] = UNSET
    request_percentage: Annotated[
        Rate | UnsetType | None, Meta(description="processor time; 100 is one core")
    ] = UNSET
    controller_mutation_rate: Annotated[
        Rate | UnsetType | None,
        Meta(description="partitions created, deleted and added, a second"),
    ] = UNSET

    def limits(self) -> dict[QuotaKind, float | None]:
        """Return the limits that are given."""
        given = ((kind, getattr(self, kind)) for kind in QuotaKind)
        return {kind: rate for kind, rate in given if rate is not UNSET}


class QuotaInfo(msgspec.Struct, kw_only=True):
    """A quota; null: for whichever user or client, or no limit."""

    user: str | None
    client_id: str | None
    producer_byte_rate: float | None
    consumer_byte_rate: float | None
    request_percentage: float | None
    controller_mutation_rate: float | None


class QuotaList(msgspec.Struct):
    quotas: list[QuotaInfo]


def quota_info(entity: QuotaEntity, limits: QuotaLimits) -> QuotaInfo:
    rates = {str(kind): limits.of(kind) for kind in QuotaKind}
    return QuotaInfo(user=entity.user, client_id=entity.client_id, **rates)
