"""The doctor passes good stores, and detects each known kind of broken one."""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from storage.errors import StoreUnavailable
from storage.stores.directory import DirectoryObjects
from storage.stores.doctor import Diagnosis, check_metadata, check_objects
from storage.stores.dynamodb.table import DynamoMetadata
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Op, Put, Versioned
from storage.stores.objects import Body, ObjectInfo, ObjectStore
from storage.stores.s3 import S3Objects
from storage.stores.sqlite.table import SqliteMetadata
from tests.storage.helpers.servers import make_bucket

pytestmark = pytest.mark.anyio


def new_version() -> str:
    return secrets.token_hex(8)


def broken(findings: list[Diagnosis]) -> list[str]:
    return [finding.name for finding in findings if not finding.ok]


async def objects_left(store: ObjectStore) -> list[ObjectInfo]:
    return [info async for batch in store.list("") for info in batch]


class Overwriting(MemoryObjects):
    """Ignores `If-None-Match`, as several servers that call themselves S3 do."""

    async def put(self, key: str, body: Body) -> None:
        await self.delete([key])
        await super().put(key, body)


class OverwritingInRaces(MemoryObjects):
    """Checks first and writes later: correct only with a single writer."""

    async def put(self, key: str, body: Body) -> None:
        taken = key in self._bodies
        await asyncio.sleep(0)
        if not taken:
            await self.delete([key])
        await super().put(key, body)


class Forgetful(MemoryObjects):
    """Deletes nothing, lists nothing, and cuts ranges short."""

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        body = await self.get(key)
        return [body[start:end] for start, end in ranges]

    async def delete(self, keys: Sequence[str]) -> None:
        pass

    async def list(self, prefix: str):  # type: ignore[no-untyped-def]
        yield []


class Unreachable(MemoryObjects):
    async def put(self, key: str, body: Body) -> None:
        raise StoreUnavailable("no answer")


async def test_good_stores_pass_and_no_object_is_left_behind(tmp_path: Path) -> None:
    for store in (MemoryObjects(), DirectoryObjects(tmp_path)):
        findings = await check_objects(store)

        assert broken(findings) == []
        assert len(findings) == 7
        assert all(finding.detail and finding.took_ms >= 0 for finding in findings)
        assert await objects_left(store) == []
        await store.close()


async def test_a_store_that_overwrites_is_detected_and_no_object_is_left_behind() -> None:
    store = Overwriting()

    findings = await check_objects(store)

    assert broken(findings) == ["conditional write", "racing writers"]
    assert "do not use" in findings[0].detail
    assert await objects_left(store) == []


async def test_a_store_that_overwrites_only_in_races_is_detected() -> None:
    assert "racing writers" in broken(await check_objects(OverwritingInRaces()))


async def test_broken_ranges_lists_and_deletes_are_detected() -> None:
    findings = await check_objects(Forgetful())

    assert broken(findings) == ["range reads", "list after write", "delete"]


async def test_a_store_out_of_reach_is_asked_only_once() -> None:
    [finding] = await check_objects(Unreachable())

    assert (finding.ok, finding.detail) == (False, "no answer")


class Unconditional(MemoryMetadata):
    """Ignores conditions."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        now = [(op, await self.get(op.key)) for op in ops if isinstance(op, Put)]
        met = [Put(op.key, op.value, item.version if item else None) for op, item in now]
        return await super().transact(met) if met else {}


class Torn(MemoryMetadata):
    """Applies the puts of a transaction one by one."""

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        versions: dict[str, str] = {}
        for op in ops:
            versions |= await super().transact([op])
            await asyncio.sleep(0)
        return versions


class Stale(MemoryMetadata):
    """Reads the value before the last write, as an eventually consistent read may."""

    async def get(self, key: str) -> Versioned | None:
        return None


async def test_good_metadata_passes(tmp_path: Path) -> None:
    for store in (
        MemoryMetadata(new_version),
        SqliteMetadata(tmp_path / "metadata.sqlite", new_version),
    ):
        findings = await check_metadata(store)

        assert broken(findings) == []
        assert len(findings) == 6
        await store.close()


async def test_metadata_that_ignores_conditions_is_detected() -> None:
    found = broken(await check_metadata(Unconditional(new_version)))

    assert found[:3] == ["conditional write", "racing writers", "transactions"]


async def test_metadata_that_applies_half_a_transaction_is_detected() -> None:
    assert "transactions" in broken(await check_metadata(Torn(new_version)))


async def test_metadata_with_stale_reads_is_detected() -> None:
    assert "read after write" in broken(await check_metadata(Stale(new_version)))


async def test_no_item_is_left_in_the_table() -> None:
    store = MemoryMetadata(new_version)

    await check_metadata(store)

    assert store._items == {}


@pytest.mark.aws
@pytest.mark.parametrize(
    "server", ["ministack", "moto", pytest.param("seaweed", marks=pytest.mark.slow)]
)
async def test_every_s3_server_of_our_tests_passes(
    request: pytest.FixtureRequest, server: str, aws_environment: None
) -> None:
    url: str = request.getfixturevalue(server)
    bucket = f"doctor-{secrets.token_hex(4)}"
    make_bucket(url, bucket)
    store = S3Objects(bucket, endpoint=url)

    assert broken(await check_objects(store)) == []
    assert await objects_left(store) == []


@pytest.mark.aws
async def test_the_dynamodb_of_our_race_tests_passes(ministack: str, aws_environment: None) -> None:
    store = DynamoMetadata(f"doctor-{secrets.token_hex(4)}", new_version, endpoint=ministack)
    await store.create_table()

    assert broken(await check_metadata(store)) == []
    await store.close()


@pytest.mark.aws
async def test_a_missing_table_is_one_finding_with_the_command_that_creates_it(
    ministack: str, aws_environment: None
) -> None:
    store = DynamoMetadata("missing", new_version, endpoint=ministack)

    [finding] = await check_metadata(store)

    assert "riacho doctor --create" in finding.detail
    await store.close()
