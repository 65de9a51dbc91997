"""Large files to S3 in parts, over a lossy proxy: whole or not at all, and repeatable."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.errors import ObjectExists, ObjectMissing, StoreUnavailable
from storage.stores import s3
from storage.stores.s3 import S3Objects
from tests.storage.helpers import servers
from tests.storage.helpers.lossy_proxy import Fault, LossyProxy, answer

pytestmark = [pytest.mark.anyio, pytest.mark.aws]

MIB = 1024 * 1024
INTERNAL = answer(500, "<Error><Code>InternalError</Code></Error>")


@pytest.fixture(scope="session")
def bucket(ministack: str) -> str:
    name = f"files-{secrets.token_hex(4)}"
    servers.make_bucket(ministack, name)
    return name


@pytest.fixture
async def proxy(ministack: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(ministack) as running:
        yield running


@pytest.fixture
async def store(
    proxy: LossyProxy, bucket: str, aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> S3Objects:
    # The smallest parts that S3 accepts, and no file that fits into one.
    monkeypatch.setattr(s3, "PART_BYTES", 5 * MIB)
    monkeypatch.setattr(s3, "ONE_REQUEST_BYTES_MAX", 5 * MIB)
    return S3Objects(bucket, secrets.token_hex(8), endpoint=proxy.url, sleep=no_sleep)


async def no_sleep(_: float) -> None:
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789abcdef" * (12 * MIB // 16) + b"end")
    return path


async def test_a_file_is_uploaded_in_parts(store: S3Objects, proxy: LossyProxy, file: Path) -> None:
    await store.put_file("a", file)

    assert await store.get("a") == file.read_bytes()
    assert proxy.count("partNumber=") == 3


@pytest.mark.parametrize("what", ["partNumber=2", "POST "])
async def test_a_file_is_put_although_the_reply_of_any_request_is_lost(
    store: S3Objects, proxy: LossyProxy, file: Path, what: str
) -> None:
    proxy.faults.append(Fault(what, lose_reply=True))

    await store.put_file("a", file)

    assert await store.get("a") == file.read_bytes()


@pytest.mark.parametrize("skip", [0, 1])
async def test_a_file_is_put_although_an_error_follows_the_completed_upload(
    store: S3Objects, proxy: LossyProxy, file: Path, skip: int
) -> None:
    proxy.faults.append(Fault("POST ", skip=skip, answer_after=INTERNAL))

    await store.put_file("a", file)

    assert await store.get("a") == file.read_bytes()


@pytest.mark.parametrize("what", ["partNumber=3", "uploadId="])
async def test_a_file_with_a_missing_part_is_no_object(
    store: S3Objects, proxy: LossyProxy, file: Path, what: str
) -> None:
    proxy.faults.append(Fault(what, refuse=True, times=-1))

    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        await store.put_file("a", file)

    proxy.faults.clear()
    with pytest.raises(ObjectMissing):
        await store.get("a")
    await store.put_file("a", file)
    assert await store.get("a") == file.read_bytes()


async def test_after_a_lost_reply_an_earlier_object_is_still_a_conflict(
    store: S3Objects, proxy: LossyProxy, file: Path
) -> None:
    await store.put("a", [b"first"])
    proxy.faults.append(Fault("HEAD ", lose_reply=True))

    with pytest.raises(ObjectExists):
        await store.put_file("a", file)

    assert await store.get("a") == b"first"
    assert proxy.count("partNumber=") == 0
