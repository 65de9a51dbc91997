"""Objects in S3, or anything that speaks its protocol, through obstore.

obstore carries the data because a request costs it a tenth of the CPU that botocore needs; boto3
is asked only for credentials that are not in the environment (profiles, SSO, roles).

- Configured by AWS's own variables: `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`,
  `AWS_DEFAULT_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`,
  `AWS_PROFILE`, ...
- A put sends `If-None-Match: *`. When its reply is lost, the retry finds our own object and is
  refused; so a refusal counts only after the stored bytes were read and differ.
- A large file is sent in parts, which S3 joins when all have arrived. `If-None-Match` cannot be
  sent with them here, so the key is checked before. Parts that a crash leaves behind must be
  expired by the bucket.
- Every attempt has a time limit that grows with its bytes; every call has a maximum of attempts.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from storage.errors import Corrupt, NotSupported, ObjectExists, ObjectMissing, StoreUnavailable
from storage.stores.objects import Body, ObjectInfo, check_key
from storage.stores.ranges import Range, cut, merged
from storage.stores.signed_urls import AwsKey, UrlSigner

if TYPE_CHECKING:
    import boto3
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

T = TypeVar("T")

CLOSE_S: Final = 0.05
"""Time for obstore's threads to release their objects before the process ends."""

CONNECTIONS_MAX: Final = 64
"""Maximum number of concurrent requests; more wait here rather than in sockets."""

REQUEST_ATTEMPTS_MAX: Final = 4
ATTEMPT_S: Final = 10.0
LOOKS_MAX: Final = 2
"""Reads before an object counts as another writer's: a single answer may be damaged."""

BYTES_PER_S_MIN: Final = 2 * 1024 * 1024
"""Maximum time of an attempt: `ATTEMPT_S` plus the time of its bytes at this rate."""

COALESCE_GAP_BYTES_MAX: Final = 512 * 1024
"""Ranges this close are read together: S3 sends as much in the time a request takes to begin."""

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 4
"""Maximum number of parts of a file that are in memory and being sent."""

ONE_REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a file sent as one body, which is atomic and never replaces an object."""

DELETE_BATCH_MAX: Final = 1000
LIST_BATCH_MAX: Final = 1000

_BACKOFF_S: Final = 0.05
_RETRIES: "Final[RetryConfig]" = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=ATTEMPT_S),
    "backoff": {
        "init_backoff": timedelta(seconds=_BACKOFF_S),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    },
}
"""obstore itself retries requests that had no effect, and those that S3 answers with 5xx."""

_CLIENT: "Final[ClientConfig]" = {
    "connect_timeout": timedelta(seconds=3),
    "timeout": timedelta(minutes=10),  # The real limits are ours, see `_within`.
    "pool_idle_timeout": timedelta(seconds=15),  # S3 closes idle connections after about 20.
    "pool_max_idle_per_host": str(CONNECTIONS_MAX),
}

_CREDENTIALS_KEPT: Final = timedelta(minutes=5)
"""botocore returns credentials that may expire in ten minutes, so we ask again before that."""

_HOPELESS: Final = (PermissionDeniedError, UnauthenticatedError)
_REGION_DEFAULT: Final = "us-east-1"
_MESSAGE_CHARS_MAX: Final = 400
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class S3Objects:
    """An `ObjectStore` in a bucket, below a prefix."""

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        endpoint: str | None = None,
        region: str | None = None,
        profile: str | None = None,
        key: AwsKey | None = None,
        attempt_s: float = ATTEMPT_S,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Use `bucket`; nothing is sent before the first call.

        `endpoint`, `region`, `profile` (a name in AWS's own configuration files) and `key` are
        those of the environment unless they are given. Raises `StoreUnavailable` if there are no
        credentials.
        """
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._endpoint = endpoint or _endpoint_of_environment()
        region = region or _region(self._endpoint, profile)
        needs_provider = key is None and _needs_provider(profile)
        self._provider = _credential_provider(profile) if needs_provider else None
        self._store = _connect(bucket, self._endpoint, region, self._provider, key)
        self._key = key or AwsKey(
            key_id=os.environ.get("AWS_ACCESS_KEY_ID", ""),
            secret=os.environ.get("AWS_SECRET_ACCESS_KEY", ""),
            token=os.environ.get("AWS_SESSION_TOKEN", ""),
        )
        self._signer = UrlSigner(_address(bucket, self._endpoint, region), region)
        self._attempt_s = attempt_s
        self._jitter = jitter
        self._sleep = sleep
        self._free = asyncio.Semaphore(CONNECTIONS_MAX)

    async def put(self, key: str, body: Body) -> None:
        path = self._path(key)
        pieces = [memoryview(piece).cast("B") for piece in body]
        size_bytes = sum(piece.nbytes for piece in pieces)

        async def attempt() -> bool:
            # In one request, because only that is atomic and needs no cleaning up.
            put = partial(obstore.put_async, mode="create", use_multipart=False)
            try:
                await self._within(lambda: put(self._store, path, pieces), size_bytes)
            except AlreadyExistsError:
                return await self._holds(key, body)
            return True

        await self._repeat(key, attempt)

    async def put_file(self, key: str, path: Path) -> None:
        size_bytes = (await asyncio.to_thread(path.stat)).st_size
        if size_bytes <= ONE_REQUEST_BYTES_MAX:
            return await self.put(key, [await asyncio.to_thread(path.read_bytes)])

        async def attempt() -> bool:
            if await self._holds_file(key, path, size_bytes):
                return True
            put = partial(
                obstore.put_async,
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
            await self._within(lambda: put(self._store, self._path(key), path), size_bytes)
            return True

        return await self._repeat(key, attempt)

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._reporting(key):
            found = await self._within(lambda: obstore.get_async(self._store, path), 0)
            return bytes(await self._within(found.bytes_async, found.meta["size"]))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[bytes]:
        path = self._path(key)
        spans = merged([each for each in ranges if each[0] < each[1]], COALESCE_GAP_BYTES_MAX)
        if not spans:
            await self._check_size(key, ranges)
        try:
            with self._reporting(key):
                # Not obstore's get_ranges: it panics when a merged range exceeds the object.
                bodies = await asyncio.gather(*(self._get_range(path, span) for span in spans))
        except StoreUnavailable:
            # S3 refuses a range that begins after the end (416), and obstore does not report that.
            await self._check_size(key, ranges)
            raise
        for body, (start, end) in zip(bodies, spans, strict=True):
            if len(body) < end - start:
                raise Corrupt(f"{key} ends at {start + len(body)}, before the range asked for")
        return [cut(spans, bodies, each) if each[0] < each[1] else b"" for each in ranges]

    async def size(self, key: str) -> int:
        path = self._path(key)
        with self._reporting(key):
            found = await self._within(lambda: obstore.head_async(self._store, path), 0)
        return found["size"]

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        for start in range(0, len(paths), DELETE_BATCH_MAX):
            await self._delete(paths[start : start + DELETE_BATCH_MAX])

    async def _delete(self, paths: Sequence[str]) -> None:
        async def attempt() -> bool:
            await self._within(lambda: obstore.delete_async(self._store, paths), 0)
            return True

        await self._repeat("delete", attempt)

    async def _get_range(self, path: str, span: Range) -> bytes:
        start, end = span
        get = partial(obstore.get_range_async, start=start, end=end)
        return bytes(await self._within(lambda: get(self._store, path), end - start))

    async def list(self, prefix: str) -> AsyncIterator[list[ObjectInfo]]:
        whole = self._prefix + prefix
        # obstore lists only whole folders, so a partial name is compared here.
        folder = whole.rpartition("/")[0]
        with self._reporting(f"list {prefix}"):
            async for batch in obstore.list(self._store, folder, chunk_size=LIST_BATCH_MAX):
                yield [
                    ObjectInfo(
                        key=found["path"].removeprefix(self._prefix),
                        size_bytes=found["size"],
                        modified_ms=int(found["last_modified"].timestamp() * 1000),
                    )
                    for found in batch
                    if found["path"].startswith(whole)
                ]

    async def presign(
        self, key: str, spans: Sequence[Range | None], expires_s: int
    ) -> Sequence[str]:
        path = self._path(key)
        return self._signer.urls(await self._aws_key(), path, spans, expires_s)

    def address(self, key: str) -> str:
        raise NotSupported("objects in a bucket are read by presigned URLs")

    async def _aws_key(self) -> AwsKey:
        if self._provider is None:
            return self._key
        # In a thread: expired credentials are renewed over the network.
        found = await asyncio.to_thread(self._provider)
        return AwsKey(
            key_id=found["access_key_id"],
            secret=found["secret_access_key"],
            token=found.get("token") or "",
        )

    async def close(self) -> None:
        # obstore closes its connections only when the store is garbage collected. Its threads
        # may still hold the last answers, and a process that ends meanwhile aborts. So wait.
        await self._sleep(CLOSE_S)

    def _path(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    async def _within(self, request: Callable[[], Awaitable[T]], size_bytes: int) -> T:
        """Return the result of `request`, which obstore starts as soon as it is called."""
        async with self._free, asyncio.timeout(self._attempt_s + size_bytes / BYTES_PER_S_MIN):
            return await request()

    async def _repeat(self, what: str, attempt: Callable[[], Awaitable[bool]]) -> None:
        """Call `attempt` until it returns True. Repeating it must be harmless."""
        failure = StoreUnavailable(f"{what}: S3 refused it as existing, yet it is not there")
        for number in range(REQUEST_ATTEMPTS_MAX):
            if number:
                await self._sleep(_BACKOFF_S * 2**number * self._jitter())
            try:
                with self._reporting(what):
                    if await attempt():
                        return
            except StoreUnavailable as error:
                if isinstance(error.__cause__, _HOPELESS):
                    raise
                failure = error
        raise failure

    async def _holds(self, key: str, body: Body) -> bool:
        """Return whether the object has these bytes. Raises `ObjectExists` if it has others."""
        for _ in range(LOOKS_MAX):
            try:
                found = await self.get(key)
            except ObjectMissing:
                # Another put or delete was in progress (409), or the object was deleted since.
                return False
            if found == b"".join(body):
                return True
        raise ObjectExists(f"{key} holds other bytes")

    async def _holds_file(self, key: str, path: Path, size_bytes: int) -> bool:
        """Return whether the object has the bytes of the file; like `_holds`."""
        try:
            is_same = await self.size(key) == size_bytes
            with path.open("rb") as file:
                for start in range(0, size_bytes if is_same else 0, PART_BYTES):
                    span = (start, min(start + PART_BYTES, size_bytes))
                    [found] = await self.get_ranges(key, [span])
                    if found != file.read(PART_BYTES):
                        is_same = False
                        break
        except ObjectMissing:
            return False
        if not is_same:
            raise ObjectExists(f"{key} holds other bytes")
        return True

    async def _check_size(self, key: str, ranges: Sequence[Range]) -> None:
        size_bytes = await self.size(key)
        if any(end > size_bytes for _, end in ranges):
            raise Corrupt(f"{key} ends at {size_bytes}, before the range asked for")

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        """Turn the errors of obstore into ours."""
        where = f"{what} in s3://{self._bucket}"
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise StoreUnavailable(f"{where}: there is no such bucket; create it") from error
            raise ObjectMissing(f"there is no object {what} in s3://{self._bucket}") from error
        except _HOPELESS as error:
            raise StoreUnavailable(
                f"{where}: access denied; check the credentials, and that they may s3:GetObject,"
                f" s3:PutObject, s3:DeleteObject and s3:ListBucket: {_brief(error)}"
            ) from error
        except (BaseError, TimeoutError) as error:
            raise StoreUnavailable(
                f"{where}: no useful answer from {self._endpoint or 'AWS'}; check the network,"
                f" AWS_ENDPOINT_URL and AWS_REGION: {_brief(error)}"
            ) from error


def _endpoint_of_environment() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _needs_provider(profile: str | None) -> bool:
    return bool(profile) or not os.environ.get("AWS_ACCESS_KEY_ID")


def _has_own_host(bucket: str, endpoint: str | None) -> bool:
    """Whether the name of the bucket is part of the host's.

    AWS prefers that; its certificates do not match names with a dot.
    """
    return endpoint is None and "." not in bucket


def _address(bucket: str, endpoint: str | None, region: str) -> str:
    """Return the URL of the bucket."""
    if _has_own_host(bucket, endpoint):
        return f"https://{bucket}.s3.{region}.amazonaws.com"
    return f"{(endpoint or f'https://s3.{region}.amazonaws.com').rstrip('/')}/{bucket}"


def _connect(
    bucket: str,
    endpoint: str | None,
    region: str,
    provider: "Boto3CredentialProvider | None",
    key: AwsKey | None,
) -> S3Store:
    address = urlsplit(endpoint or "https://")
    config: S3Config = {
        "region": region,
        # Hashing the body costs more CPU than sending it, and TLS protects it already.
        "unsigned_payload": address.scheme == "https" or address.hostname in _LOOPBACK,
        "virtual_hosted_style_request": _has_own_host(bucket, endpoint),
    }
    if endpoint is not None:
        config["aws_endpoint_url_s3"] = endpoint
    # Not in `config`: obstore would add a token of the environment, which belongs to another key.
    fixed = None if key is None else _fixed(key)
    return S3Store(
        bucket,
        config=config,
        client_options={**_CLIENT, "allow_http": address.scheme == "http"},
        retry_config=_RETRIES,
        credential_provider=fixed or provider,
    )


def _fixed(key: AwsKey) -> "Callable[[], S3Credential]":
    def provide() -> "S3Credential":
        found: S3Credential = {
            "access_key_id": key.key_id,
            "secret_access_key": key.secret,
            "expires_at": None,
        }
        if key.token:
            found["token"] = key.token
        return found

    return provide


def _region(endpoint: str | None, profile: str | None) -> str:
    named = None
    if not profile:
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if named is None and (profile or endpoint is None):
        named = _session(profile).region_name
    return named or _REGION_DEFAULT


def _session(profile: str | None) -> "boto3.Session":
    # Imported here: a Lambda function has all in its environment and must not wait for these.
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.Session(profile_name=profile)
    except BotoCoreError as error:
        raise StoreUnavailable(f"AWS profile {profile!r} cannot be used: {error}") from error


def _credential_provider(profile: str | None) -> "Boto3CredentialProvider":
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(_session(profile), ttl=_CREDENTIALS_KEPT)
    except (BotoCoreError, ValueError) as error:
        raise StoreUnavailable(
            "no AWS credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or"
            f" AWS_PROFILE, or run where a role is attached: {error}"
        ) from error


def _brief(error: Exception) -> str:
    """Return the part of obstore's message that people can use."""
    text = str(error).partition("\n\nDebug source")[0].replace("\n", " ")
    return text[:_MESSAGE_CHARS_MAX] or type(error).__name__
