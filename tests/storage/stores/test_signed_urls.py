"""Signed URLs, compared with those of boto3, and with the addresses that obstore uses."""

import time
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import obstore
import pytest
from botocore.config import Config

from storage.stores.s3 import S3Objects
from storage.stores.signed_urls import AwsKey, UrlSigner

KEY_ID, SECRET, TOKEN = "AKIDEXAMPLE", "hush/+=", "session/token+=="
REGION = "eu-central-1"


def signed_by_boto(range_: str | None, token: str) -> str:
    client = boto3.client(
        "s3",
        endpoint_url="http://127.0.0.1:9000",
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
        aws_session_token=token or None,
        config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
    )
    wanted: dict[str, Any] = {"Bucket": "bucket", "Key": "log/a b/ü+.seg"}
    if range_ is not None:
        wanted["Range"] = range_
    url: str = client.generate_presigned_url("get_object", Params=wanted, ExpiresIn=900)
    client.close()
    return url


@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("span", [None, (0, 1), (4096, 8192)])
def test_signatures_are_those_of_boto3(span: tuple[int, int] | None, token: str) -> None:
    expected = signed_by_boto(f"bytes={span[0]}-{span[1] - 1}" if span else None, token)
    moment = parse_qs(urlsplit(expected).query)["X-Amz-Date"][0]
    signer = UrlSigner(
        "http://127.0.0.1:9000/bucket", REGION, lambda: time.strptime(moment, "%Y%m%dT%H%M%SZ")
    )

    [url] = signer.urls(
        AwsKey(key_id=KEY_ID, secret=SECRET, token=token), "log/a b/ü+.seg", [span], 900
    )

    assert urlsplit(url)[:3] == urlsplit(expected)[:3]
    assert parse_qs(urlsplit(url).query) == parse_qs(urlsplit(expected).query)


@pytest.mark.parametrize(
    ("bucket", "endpoint"),
    [
        ("bucket", None),
        ("buc.ket", None),
        ("bucket", "http://127.0.0.1:9000"),
        ("bucket", "https://s3.example"),
    ],
)
@pytest.mark.anyio
async def test_addresses_are_those_that_obstore_uses(
    bucket: str, endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    store = S3Objects(bucket, "log", endpoint=endpoint, region=REGION)

    [url] = await store.presign("hot/a.seg", [None], 60)

    used = obstore.sign(store._store, "GET", "log/hot/a.seg", timedelta(seconds=60))
    assert url.partition("?")[0] == used.partition("?")[0]
    await store.close()
