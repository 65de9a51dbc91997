"""Zones that are buckets of a local S3, which a test can break and heal."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import boto3

from tests.integration.zoned import ZONES, Failure, Zoned
from tests.local_aws import LocalAws
from tests.storage.helpers import servers


class Buckets(Zoned):
    """A bucket for each zone; the table is where it always is."""

    def __init__(self, folder: Path, *, aws: LocalAws) -> None:
        name = folder.name.lower().replace("_", "-")
        self._prefix = f"riacho-{name}-{secrets.token_hex(4)}"
        self._s3 = boto3.client(
            "s3",
            endpoint_url=aws.s3,
            aws_access_key_id=servers.ACCESS_KEY,
            aws_secret_access_key=servers.SECRET_KEY,
            region_name=servers.REGION,
        )
        env = aws.prepare(",".join(f"{name}=s3://{self._bucket(name)}/log" for name in ZONES))
        super().__init__(folder, env)

    def _bucket(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def fail(self, name: str, how: Failure) -> None:
        if how != "wiped":
            super().fail(name, "denied" if how == "unplugged" else how)
            return
        # A bucket cannot be emptied at once, so it is out of reach meanwhile.
        super().fail(name, "denied")
        for key in self.keys(name):
            self._s3.delete_object(Bucket=self._bucket(name), Key=key)
        super().heal(name)

    def keys(self, name: str) -> Iterator[str]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket(name))
        for page in pages:
            for item in page.get("Contents", []):
                yield item["Key"]

    def spoil(self, gone_key: str, damaged_key: str) -> None:
        """Remove an object of zone b and damage one of c by hand."""
        gone, damaged = f"log/{gone_key}", f"log/{damaged_key}"
        self._s3.delete_object(Bucket=self._bucket("b"), Key=gone)
        body = bytearray(self._s3.get_object(Bucket=self._bucket("c"), Key=damaged)["Body"].read())
        body[20] ^= 1
        self._s3.put_object(Bucket=self._bucket("c"), Key=damaged, Body=bytes(body))
