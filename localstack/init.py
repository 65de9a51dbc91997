"""Create the buckets and the table that `RIACHO_ZONES` and `RIACHO_METADATA` name.

    python localstack/init.py

Existing ones are left unchanged. Endpoints and credentials are in AWS's own variables
(`AWS_ENDPOINT_URL` and so on). Waits for servers that are still starting. Every local AWS is
prepared by this file, including those of the tests.
"""

# ruff: noqa: T201, TID251 (A script, which may create what the service may not.)

import asyncio
import sys
import time
from typing import Final
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from service.process.stores import open_table
from service.settings import Settings
from service.world.clock import real_world
from storage.errors import StoreUnavailable
from storage.stores.dynamodb.table import DynamoMetadata

START_S_MAX: Final = 120
POLL_S: Final = 0.2

_ONCE: Final = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30)
_THERE_ALREADY: Final = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def make_buckets(zones: str) -> list[str]:
    """Create the buckets of all zones in S3; return their names."""
    urls = [urlsplit(zone.partition("=")[2]) for zone in zones.split(",")]
    names = sorted({url.netloc for url in urls if url.scheme == "s3"})
    client = boto3.client("s3", config=_ONCE)
    try:
        for name in names:
            try:
                client.create_bucket(Bucket=name)
            except ClientError as error:
                if error.response["Error"]["Code"] not in _THERE_ALREADY:
                    raise
    finally:
        client.close()
    return names


async def make_table(metadata: str) -> bool:
    """Create the table if it is in DynamoDB; return whether it is."""
    table = open_table(Settings(metadata=metadata), real_world())
    try:
        if not isinstance(table, DynamoMetadata):
            return False
        await table.create_table()
        return True
    finally:
        await table.close()


def main() -> int:
    settings = Settings()
    give_up_s = time.monotonic() + START_S_MAX
    while True:
        try:
            buckets = make_buckets(settings.zones)
            table = asyncio.run(make_table(settings.metadata))
            break
        except (BotoCoreError, ClientError, StoreUnavailable) as error:
            if time.monotonic() > give_up_s:
                print(f"init: {error}", file=sys.stderr)
                return 1
            time.sleep(POLL_S)
    print(
        f"buckets: {', '.join(buckets) or 'none'}; table: {settings.metadata if table else 'none'}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
