"""S3 with lost replies, racing conditions and wrong credentials: real servers, lossy proxy."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from storage.errors import InvalidConfig, ObjectExists, ObjectMissing, StoreUnavailable
from storage.stores.opening import open_objects
from storage.stores.s3 import REQUEST_ATTEMPTS_MAX, S3Objects
from tests.storage.helpers import servers
from tests.storage.helpers.lossy_proxy import Fault, LossyProxy, answer

pytestmark = [pytest.mark.anyio, pytest.mark.aws]

CONFLICT = answer(409, "<Error><Code>ConditionalRequestConflict</Code></Error>")
SLOW_DOWN = answer(503, "<Error><Code>SlowDown</Code></Error>")
INTERNAL = answer(500, "<Error><Code>InternalError</Code></Error>")


@pytest.fixture(scope="session")
def bucket(ministack: str) -> str:
    name = f"lossy-{secrets.token_hex(4)}"
    servers.make_bucket(ministack, name)
    return name


@pytest.fixture
async def proxy(ministack: str) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(ministack) as running:
        yield running


@pytest.fixture
async def store(proxy: LossyProxy, bucket: str, aws_environment: None) -> S3Objects:
    return S3Objects(bucket, secrets.token_hex(8), endpoint=proxy.url, sleep=no_sleep)


async def no_sleep(_: float) -> None:
    pass


async def test_a_put_whose_reply_is_lost_succeeds(store: S3Objects, proxy: LossyProxy) -> None:
    proxy.faults.append(Fault("PUT ", lose_reply=True))

    await store.put("a", [b"once"])

    assert await store.get("a") == b"once"
    assert proxy.count("PUT ") == 2
    assert all(b"if-none-match: *" in put.head.lower() for put in proxy.seen if b"PUT " in put.head)


async def test_after_a_lost_reply_an_earlier_object_is_still_a_conflict(
    store: S3Objects, proxy: LossyProxy
) -> None:
    await store.put("a", [b"first"])
    proxy.faults.append(Fault("PUT ", lose_reply=True))

    with pytest.raises(ObjectExists):
        await store.put("a", [b"second"])

    assert await store.get("a") == b"first"


async def test_after_a_lost_and_a_damaged_reply_our_own_object_is_recognised(
    store: S3Objects, proxy: LossyProxy
) -> None:
    damaged = "ETag: x\r\nLast-Modified: Sun, 01 Nov 2026 00:00:00 GMT\r\n"
    proxy.faults.append(Fault("PUT ", lose_reply=True))
    proxy.faults.append(Fault("GET ", answer=answer(200, "onc", headers=damaged)))

    await store.put("a", [b"once"])

    assert await store.get("a") == b"once"


@pytest.mark.parametrize("reply", [CONFLICT, SLOW_DOWN, INTERNAL])
async def test_a_put_is_retried_when_the_store_asks_for_it(
    store: S3Objects, proxy: LossyProxy, reply: bytes
) -> None:
    proxy.faults.append(Fault("PUT ", answer=reply, times=2))

    await store.put("a", [b"body"])

    assert await store.get("a") == b"body"
    assert proxy.count("PUT ") == 3


@pytest.mark.parametrize("reply", [CONFLICT, SLOW_DOWN, INTERNAL])
async def test_an_error_after_the_write_is_retried_and_succeeds(
    store: S3Objects, proxy: LossyProxy, reply: bytes
) -> None:
    proxy.faults.append(Fault("PUT ", answer_after=reply))

    await store.put("a", [b"body"])

    assert await store.get("a") == b"body"


async def test_a_put_gives_up_on_a_store_that_keeps_failing(
    store: S3Objects, proxy: LossyProxy
) -> None:
    proxy.faults.append(Fault("PUT ", refuse=True, times=-1))

    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        await store.put("a", [b"body"])

    assert proxy.count("PUT ") >= REQUEST_ATTEMPTS_MAX
    with pytest.raises(ObjectMissing):
        await store.get("a")


async def test_a_put_gives_up_on_a_store_whose_conflict_names_no_object(
    store: S3Objects, proxy: LossyProxy
) -> None:
    proxy.faults.append(Fault("PUT ", answer=CONFLICT, times=-1))

    with pytest.raises(StoreUnavailable, match="not there"):
        await store.put("a", [b"body"])


async def test_a_call_to_a_store_that_hangs_times_out(
    proxy: LossyProxy, bucket: str, aws_environment: None
) -> None:
    store = S3Objects(
        bucket, secrets.token_hex(8), endpoint=proxy.url, attempt_s=0.05, sleep=no_sleep
    )
    proxy.faults.append(Fault("", gate=asyncio.Event(), times=-1))

    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await store.put("a", [b"body"])
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await store.get("a")

    assert proxy.count("PUT ") == REQUEST_ATTEMPTS_MAX


@pytest.mark.parametrize("fault", [{"lose_reply": True}, {"answer": SLOW_DOWN}, {"refuse": True}])
async def test_reads_and_deletes_are_retried(
    store: S3Objects, proxy: LossyProxy, fault: dict[str, bool]
) -> None:
    await store.put("a", [b"hello"])

    proxy.faults.append(Fault("GET ", **fault))
    assert await store.get("a") == b"hello"
    proxy.faults.append(Fault("GET ", **fault))
    assert await store.get_ranges("a", [(1, 3)]) == [b"el"]
    proxy.faults.append(Fault("?delete", **fault))
    await store.delete(["a"])
    proxy.faults.append(Fault("GET ", **fault))
    assert [batch async for batch in store.list("") if batch] == []


async def test_a_truncated_reply_is_never_returned_as_the_object(
    store: S3Objects, proxy: LossyProxy
) -> None:
    await store.put("a", [b"hello"])
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: x\r\nLast-Modified: "
    short += b"Sun, 01 Nov 2026 00:00:00 GMT\r\nConnection: close\r\n\r\nhe"
    proxy.faults.append(Fault("GET ", answer=short, times=-1))

    with pytest.raises(StoreUnavailable):
        await store.get("a")


@pytest.mark.usefixtures("aws_environment")
async def test_a_missing_bucket_is_not_a_missing_object(ministack: str) -> None:
    store = S3Objects("no-such-bucket-here", endpoint=ministack, sleep=no_sleep)

    with pytest.raises(StoreUnavailable, match="no such bucket"):
        await store.get("a")
    with pytest.raises(StoreUnavailable, match="no such bucket"):
        await store.put("a", [b"x"])


@pytest.mark.usefixtures("aws_environment")
async def test_a_refused_connection_says_what_to_check() -> None:
    [port] = servers.free_ports(1)
    store = S3Objects("bucket", endpoint=f"http://127.0.0.1:{port}", sleep=no_sleep)

    with pytest.raises(StoreUnavailable, match="AWS_ENDPOINT_URL"):
        await store.get("a")


async def test_the_endpoint_is_taken_from_the_environment(
    ministack: str, bucket: str, aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ministack)

    store = S3Objects(bucket, secrets.token_hex(8))
    await store.put("a", [b"x"])

    assert await store.get("a") == b"x"


@pytest.fixture(scope="session")
def seaweed_bucket(seaweed: str) -> str:
    name = f"signed-{secrets.token_hex(4)}"
    servers.make_bucket(seaweed, name)
    return name


async def test_wrong_credentials_are_reported(
    seaweed: str, seaweed_bucket: str, aws_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    store = S3Objects(seaweed_bucket, endpoint=seaweed, sleep=no_sleep)

    with pytest.raises(StoreUnavailable, match="check the credentials"):
        await store.put("a", [b"x"])


async def test_credentials_can_come_from_a_profile(
    seaweed: str,
    seaweed_bucket: str,
    aws_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "credentials").write_text(
        f"[laptop]\naws_access_key_id = {servers.ACCESS_KEY}\n"
        f"aws_secret_access_key = {servers.SECRET_KEY}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "laptop")

    store = S3Objects(seaweed_bucket, secrets.token_hex(8), endpoint=seaweed)
    await store.put("a", [b"x"])

    assert await store.get("a") == b"x"


async def test_the_error_without_credentials_says_where_to_set_them(
    aws_environment: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(StoreUnavailable, match="AWS_PROFILE"):
        S3Objects("bucket")


async def test_a_presigned_url_needs_no_credentials(
    seaweed: str, seaweed_bucket: str, aws_environment: None
) -> None:
    store = S3Objects(seaweed_bucket, "signed", endpoint=seaweed)
    await store.put("a/b", [b"public for a minute"])
    await store.put("a/c", [b"private"])

    [url] = await store.presign("a/b", [None], 60)

    async with httpx.AsyncClient() as client:
        assert (await client.get(url)).content == b"public for a minute"
        some = await client.get(url, headers={"range": "bytes=7-9"})
        assert (some.status_code, some.content) == (206, b"for")
        assert (await client.get(url.replace("a/b", "a/c"))).status_code == 403
        assert (await client.get(url.partition("?")[0])).status_code == 403


async def test_a_presigned_range_gives_no_other_bytes(
    seaweed: str, seaweed_bucket: str, aws_environment: None
) -> None:
    store = S3Objects(seaweed_bucket, "signed", endpoint=seaweed)
    await store.put("mixed", [b"yours", b"theirs", b"yours"])
    await store.put("other", [b"theirs, too"])

    first, last = await store.presign("mixed", [(0, 5), (11, 16)], 60)

    async with httpx.AsyncClient() as client:

        async def got(url: str, *ranges: str) -> tuple[int, bytes]:
            response = await client.get(url, headers=[("range", each) for each in ranges])
            return response.status_code, response.content if response.is_success else b""

        assert await got(first, "bytes=0-4") == (206, b"yours")
        assert await got(last, "bytes=11-15") == (206, b"yours")
        for ranges in [
            (),
            ("bytes=0-5",),
            ("bytes=0-",),
            ("bytes=-16",),
            ("bytes=5-10",),
            ("bytes=11-15",),
            ("bytes=0-4,5-10",),
            ("bytes=0-4", "bytes=5-10"),
            ("bytes=5-10", "bytes=0-4"),
        ]:
            status, body = await got(first, *ranges)
            assert (status, body) == (403, b""), ranges
        unsigned = first.replace("host%3Brange", "host")
        assert unsigned != first
        assert (await got(unsigned, "bytes=5-10"))[0] == 403
        assert (await got(first.replace("/mixed", "/other"), "bytes=0-4"))[0] == 403
        for method in ("HEAD", "PUT", "DELETE"):
            answer = await client.request(method, first, headers={"range": "bytes=0-4"})
            assert answer.status_code == 403, method


async def test_a_url_can_override_endpoint_region_and_profile(
    ministack: str,
    bucket: str,
    aws_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    config = tmp_path / "credentials"
    config.write_text("[elsewhere]\naws_access_key_id = test\naws_secret_access_key = test\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(config))
    [closed] = servers.free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed}")
    prefix = secrets.token_hex(8)
    options = f"endpoint={ministack}&region=eu-west-1&profile=elsewhere"

    store = open_objects(f"s3://{bucket}/{prefix}?{options}")
    await store.put("a", [b"there"])

    assert await S3Objects(bucket, prefix, endpoint=ministack).get("a") == b"there"
    await store.close()


def test_unknown_options_and_profiles_in_a_url_are_refused() -> None:
    for query in ("zone=1", "region", "region=a&&"):
        with pytest.raises(InvalidConfig, match="endpoint=…, region=…, profile=…"):
            open_objects(f"s3://bucket/prefix?{query}")
    with pytest.raises(StoreUnavailable, match="profile 'nobody'"):
        open_objects("s3://bucket?profile=nobody")
