"""The metadata table in DynamoDB, through aiobotocore.

- Reads are always consistent.
- One op is one conditional request; several are one transaction of DynamoDB.
- botocore's own retries are off, because they hide whether a write may have been applied although
  its reply was lost. The loop here retries instead, remembers that, and recognises its own write
  by the version it carries (`dynamodb_items.refusal`).

A write that was delayed in the network can arrive after its retry. It then fails its condition,
because versions are never reused; only "there is no such item" can become true again.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

from aiobotocore.session import get_session
from aiohttp import ClientConnectorError
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    WaiterError,
)
from botocore.exceptions import ConnectionError as NotConnected

from storage.errors import MetadataConflict, OutcomeUnknown, StoreUnavailable
from storage.stores.dynamodb.failures import Failure, advice, code_of, failure_of, is_our_mistake
from storage.stores.dynamodb.items import (
    Found,
    Request,
    key_item,
    key_of,
    refusal,
    versioned,
    write_request,
)
from storage.stores.metadata import Check, Op, Put, Versioned, check_ops, collection_of

TABLE_ATTEMPTS_MAX: Final = 8
BACKOFF_S: Final = 0.02
BACKOFF_S_MAX: Final = 1.0
BATCH_GET_MAX: Final = 100
"""BatchGetItem takes at most 100 keys."""

CONNECTIONS_MAX: Final = 64
TABLE_ACTIVE_S_MAX: Final = 120

_CONFIG: Final = Config(
    connect_timeout=2,
    read_timeout=5,
    max_pool_connections=CONNECTIONS_MAX,
    retries={"total_max_attempts": 1},
    parameter_validation=False,  # It costs CPU in every call to check what we build ourselves.
)
_NETWORK: Final = (HTTPClientError, NotConnected, ChecksumError)
"""No answer, or a damaged one."""

_REGION_DEFAULT: Final = "us-east-1"


@dataclass(frozen=True, slots=True)
class _Answer:
    """The final answer of DynamoDB: a response, or that a condition did not hold."""

    response: Mapping[str, Any]
    refused: bool
    ambiguous: bool


class DynamoMetadata:
    """A `MetadataStore` in a DynamoDB table."""

    def __init__(
        self,
        table: str,
        new_version: Callable[[], str],
        *,
        endpoint: str | None = None,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Use `table`; nothing is sent, and no credentials are needed, before the first call."""
        self._table = table
        self._new_version = new_version
        self._endpoint = endpoint
        self._jitter = jitter
        self._sleep = sleep
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None

    async def get(self, key: str) -> Versioned | None:
        request = {"TableName": self._table, "Key": key_item(key), "ConsistentRead": True}
        answer = await self._read("get_item", request)
        return versioned(answer.get("Item"))

    async def get_many(self, keys: Sequence[str]) -> dict[str, Versioned]:
        found: dict[str, Versioned] = {}
        distinct = list(dict.fromkeys(keys))
        for start in range(0, len(distinct), BATCH_GET_MAX):
            found.update(await self._get_batch(distinct[start : start + BATCH_GET_MAX]))
        return found

    async def list(
        self, prefix: str, *, after: str | None = None, limit: int = 1000
    ) -> list[tuple[str, Versioned]]:
        request = self._list_request(prefix, after)
        found: list[tuple[str, Versioned]] = []
        while request is not None and len(found) < limit:
            page = await self._read("query", {**request, "Limit": limit - len(found)})
            for item in page["Items"]:
                held = versioned(item)
                assert held is not None, item
                found.append((key_of(item), held))
            last = page.get("LastEvaluatedKey")
            request = {**request, "ExclusiveStartKey": last} if last else None
        return found

    async def transact(self, ops: Sequence[Op]) -> Mapping[str, str]:
        check_ops(ops)
        if len(ops) == 1 and isinstance(ops[0], Check):
            return await self._check(ops[0])
        version = self._new_version()
        operation, request = write_request(self._table, ops, version)
        answer = await self._persist(operation, request, writes=True)
        if answer.refused:
            found = _found(ops, answer.response)
            error = refusal(ops, version, found, ambiguous=answer.ambiguous)
            if error is not None:
                raise error
        return {op.key: version for op in ops if isinstance(op, Put)}

    async def create_table(self) -> bool:
        """Create the table, wait until it can be used, and return whether it was missing.

        It is billed on demand, and can be restored to any second of the last 35 days where the
        endpoint offers that. Raises `StoreUnavailable` if it cannot be made.
        """
        client = await self._connected()
        made = True
        try:
            await client.create_table(
                TableName=self._table,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[
                    {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
                ],
                KeySchema=[
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
            )
        except ClientError as error:
            if code_of(error.response) != "ResourceInUseException":
                raise self._explained(error) from error
            made = False
        except BotoCoreError as error:
            raise self._explained(error) from error
        await self._wait_until_active(client)
        with suppress(ClientError):  # Emulators do not know it.
            await client.update_continuous_backups(
                TableName=self._table,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            )
        return made

    async def close(self) -> None:
        await self._open.aclose()

    async def _wait_until_active(self, client: Any) -> None:
        pace = {"Delay": 1, "MaxAttempts": TABLE_ACTIVE_S_MAX}
        try:
            await client.get_waiter("table_exists").wait(TableName=self._table, WaiterConfig=pace)
        except WaiterError as error:
            raise StoreUnavailable(f"the table {self._table} did not become active") from error

    async def _check(self, op: Check) -> Mapping[str, str]:
        item = await self.get(op.key)
        if (None if item is None else item.version) != op.expected:
            raise MetadataConflict({op.key: item})
        return {}

    async def _get_batch(self, keys: Sequence[str]) -> dict[str, Versioned]:
        asked: Request = {
            self._table: {"Keys": [key_item(key) for key in keys], "ConsistentRead": True}
        }
        found: dict[str, Versioned] = {}
        for attempt in range(TABLE_ATTEMPTS_MAX):
            answer = await self._read("batch_get_item", {"RequestItems": asked})
            for item in answer["Responses"].get(self._table, []):
                held = versioned(item)
                assert held is not None, item
                found[key_of(item)] = held
            asked = answer.get("UnprocessedKeys") or {}
            if not asked:
                return found
            # Retry the keys that DynamoDB left unread: throttling ends by itself.
            await self._pause(attempt)
        raise StoreUnavailable(f"{self._table}: DynamoDB keeps leaving keys unread; try later")

    def _list_request(self, prefix: str, after: str | None) -> Request | None:
        """Return the query without its limit, or None if nothing can follow `after`."""
        collection, rest = collection_of(prefix)
        request: Request = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": {"S": collection}},
        }
        if rest:  # DynamoDB takes no empty prefix.
            request["KeyConditionExpression"] += " AND begins_with(sk, :rest)"
            request["ExpressionAttributeValues"][":rest"] = {"S": rest}
        if after is None or after.encode() < prefix.encode():
            return request
        # DynamoDB refuses a start key outside of the prefix; nothing follows it anyway.
        return (
            {**request, "ExclusiveStartKey": key_item(after)} if after.startswith(prefix) else None
        )

    async def _read(self, operation: str, request: Request) -> Mapping[str, Any]:
        return (await self._persist(operation, request, writes=False)).response

    async def _persist(self, operation: str, request: Request, *, writes: bool) -> _Answer:
        """Send until DynamoDB answers, or raise `StoreUnavailable` or `OutcomeUnknown`."""
        ambiguous = False
        for attempt in range(TABLE_ATTEMPTS_MAX):
            try:
                client = await self._connected()
                response = await getattr(client, operation)(**request)
            except (ClientError, BotoCoreError) as error:
                failure = _failure(error)
                if isinstance(error, ClientError) and failure is Failure.REFUSED:
                    return _Answer(error.response, refused=True, ambiguous=ambiguous)
                ambiguous |= writes and failure is Failure.SILENT
                if failure is Failure.HOPELESS or attempt + 1 == TABLE_ATTEMPTS_MAX:
                    if ambiguous:
                        raise OutcomeUnknown(f"{operation}: {error}") from error
                    raise self._explained(error) from error
                await self._pause(attempt)
            else:
                return _Answer(response, refused=False, ambiguous=ambiguous)
        raise AssertionError("the last attempt returns or raises")

    async def _pause(self, attempt: int) -> None:
        await self._sleep(min(BACKOFF_S * 2**attempt, BACKOFF_S_MAX) * self._jitter())

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is None:
                region = _region(self._endpoint)
                client = get_session().create_client(
                    "dynamodb", endpoint_url=self._endpoint, region_name=region, config=_CONFIG
                )
                self._client = await self._open.enter_async_context(client)
            return self._client

    def _explained(self, error: ClientError | BotoCoreError) -> Exception:
        """Return the error that tells the operator what to fix."""
        if isinstance(error, ClientError):
            if is_our_mistake(error.response):
                return ValueError(f"DynamoDB cannot take this request: {error}")
            return StoreUnavailable(advice(self._table, error.response))
        if isinstance(error, _NETWORK):
            return StoreUnavailable(
                f"{self._table}: no answer from DynamoDB; check the network, AWS_ENDPOINT_URL and"
                f" AWS_REGION: {error}"
            )
        return StoreUnavailable(
            "AWS is not set up; set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, or"
            f" AWS_PROFILE, or run where a role is attached: {error}"
        )


def _region(endpoint: str | None) -> str | None:
    """Return the region; None: that of the profile."""
    # botocore reads only the second of these.
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    variables = ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL")
    elsewhere = endpoint or any(os.environ.get(variable) for variable in variables)
    return named or (_REGION_DEFAULT if elsewhere else None)


def _failure(error: ClientError | BotoCoreError) -> Failure:
    if isinstance(error, ClientError):
        return failure_of(error.response)
    if not isinstance(error, _NETWORK):
        return Failure.HOPELESS  # Credentials, region, profile: it was never sent.
    if isinstance(error, ConnectTimeoutError):
        return Failure.LATER
    # aiobotocore uses this name also for connections that broke after the request was sent.
    unconnected = isinstance(error.kwargs.get("error"), ClientConnectorError)
    if isinstance(error, EndpointConnectionError) and unconnected:
        return Failure.LATER
    return Failure.SILENT


def _found(ops: Sequence[Op], response: Mapping[str, Any]) -> Found:
    """Return the items whose conditions failed, by key."""
    if len(ops) == 1:
        return {ops[0].key: versioned(response.get("Item"))}
    return {
        op.key: versioned(reason.get("Item"))
        for op, reason in zip(ops, response["CancellationReasons"], strict=True)
        if reason["Code"] == "ConditionalCheckFailed"
    }
