"""Key-encryption keys in KMS, on a local AWS."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiobotocore.session import get_session

from storage.crypto.kms import KmsKey
from storage.crypto.wrapping import KeyWrappers
from storage.errors import EncryptionKeyUnavailable, StoreUnavailable

pytestmark = [pytest.mark.anyio, pytest.mark.aws]

SECRET = bytes(range(32))
ONE, OTHER = b"1" * 16, b"2" * 16


@pytest.fixture
async def kms(moto: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    async with get_session().create_client("kms", region_name="us-east-1") as client:
        yield client


async def test_wraps_and_unwraps_for_one_topic(kms: Any) -> None:
    arn = (await kms.create_key())["KeyMetadata"]["Arn"]
    key = KeyWrappers(None, lambda size: bytes(size)).named(f"aws-kms:{arn}")
    wrapped = await key.wrap(SECRET, ONE)

    assert SECRET not in wrapped
    assert await key.unwrap(wrapped, ONE) == SECRET
    with pytest.raises(EncryptionKeyUnavailable, match="AWS KMS refuses"):
        await key.unwrap(wrapped, OTHER)


async def test_a_key_that_is_gone_is_refused(kms: Any) -> None:
    arn = "arn:aws:kms:us-east-1:000000000000:key/00000000-0000-0000-0000-000000000000"

    with pytest.raises(EncryptionKeyUnavailable, match="NotFoundException"):
        await KmsKey(arn, "us-east-1").wrap(SECRET, ONE)


async def test_a_service_that_is_away_is_reported_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await KmsKey("arn:aws:kms:us-east-1:1:key/1", "us-east-1").wrap(SECRET, ONE)
