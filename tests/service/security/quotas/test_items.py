"""Quotas in the table: set, removed, and with each change news for all gateways."""

import pytest

from service.security.quotas.items import QuotaItems, all_quotas, parse_entity
from service.security.quotas.limits import DEFAULT, QuotaEntity, QuotaKind, QuotaLimits
from service.world.clock import real_world
from storage import keys
from storage.errors import Contended, InvalidRequest, OutcomeUnknown, StoreUnavailable
from tests.storage.helpers.faults import FAULTS, Fault, FaultyMetadata
from tests.storage.helpers.worlds import new_metadata

pytestmark = pytest.mark.anyio

ANA = QuotaEntity("ana", None)
ETL = QuotaEntity("ana", "a/b c\0é")


async def version(metadata: FaultyMetadata) -> str | None:
    item = await metadata.get(keys.security_version())
    return None if item is None else item.version


async def test_limits_are_set_changed_and_removed_one_by_one() -> None:
    metadata = FaultyMetadata(new_metadata())
    items = QuotaItems(metadata, real_world())

    await items.change(ANA, {QuotaKind.PRODUCE: 1000.0, QuotaKind.TIME: 50.0})
    await items.change(ETL, {QuotaKind.PRODUCE: 5.0})
    left = await items.change(ANA, {QuotaKind.TIME: None, QuotaKind.FETCH: 7.0})

    assert left == QuotaLimits(producer_byte_rate=1000.0, consumer_byte_rate=7.0)
    assert await items.all() == {ANA: left, ETL: QuotaLimits(producer_byte_rate=5.0)}
    gone = await items.change(ETL, {QuotaKind.PRODUCE: None})
    assert gone.is_empty
    assert await items.all() == {ANA: left}


async def test_every_change_and_only_a_change_is_news_for_all_gateways() -> None:
    metadata = FaultyMetadata(new_metadata())
    items = QuotaItems(metadata, real_world())
    seen = [await version(metadata)]
    for rate in (1.0, 2.0, None):
        await items.change(ANA, {QuotaKind.PRODUCE: rate})
        seen.append(await version(metadata))

    assert len(set(seen)) == 4
    await items.change(ANA, {QuotaKind.PRODUCE: None})
    assert await version(metadata) == seen[-1]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_change_whose_outcome_is_not_known_is_made_once_or_refused(fault: Fault) -> None:
    metadata = FaultyMetadata(new_metadata())
    items = QuotaItems(metadata, real_world())
    metadata.faults = [fault]
    wanted = {ANA: QuotaLimits(producer_byte_rate=1.0)}
    try:
        await items.change(ANA, {QuotaKind.PRODUCE: 1.0})
    except (StoreUnavailable, OutcomeUnknown, Contended):
        assert (await all_quotas(metadata)).quotas in ({}, wanted)
    else:
        assert (await all_quotas(metadata)).quotas == wanted


def test_a_user_may_be_named_as_principal() -> None:
    assert parse_entity("User:ana", None) == parse_entity("ana", None) == ANA
    assert parse_entity(DEFAULT, DEFAULT) == QuotaEntity(DEFAULT, DEFAULT)
    for user, client in [(None, None), ("", None), ("x" * 501, None)]:
        with pytest.raises(InvalidRequest):
            parse_entity(user, client)
