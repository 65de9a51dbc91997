"""URLs of stores: every documented form opens its backend; others are refused with advice."""

import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import InvalidConfig, StoreUnavailable
from storage.stores.directory import DirectoryObjects
from storage.stores.dynamodb.table import DynamoMetadata
from storage.stores.memory import MemoryMetadata, MemoryObjects
from storage.stores.metadata import Put
from storage.stores.opening import open_metadata, open_objects
from storage.stores.s3 import S3Objects
from storage.stores.sqlite.table import SqliteMetadata

pytestmark = pytest.mark.anyio


def new_version() -> str:
    return "unused"


@pytest.mark.parametrize("form", ["{}", "file://{}"])
async def test_a_directory_is_opened_by_path_or_by_file_url(form: str, tmp_path: Path) -> None:
    store = open_objects(form.format(tmp_path / "with space"))
    await store.put("a/b", [b"x"])
    await store.close()

    assert isinstance(store, DirectoryObjects)
    assert (tmp_path / "with space/a/b").read_bytes() == b"x"


async def test_a_file_url_can_be_percent_encoded(tmp_path: Path) -> None:
    store = open_objects((tmp_path / "with space").as_uri())
    await store.put("a", [b"x"])
    await store.close()

    assert (tmp_path / "with space/a").exists()


@pytest.mark.parametrize("slashes", ["sqlite://", "sqlite:///"])
async def test_sqlite_accepts_an_absolute_path(slashes: str, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "odd%20?name#.db"

    store = open_metadata(f"{slashes}{path}", new_version)
    await store.transact([Put("topic/a", b"x", None)])
    await store.close()

    assert isinstance(store, SqliteMetadata)
    assert path.exists()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreUnavailable, match=r"file/below\.db"):
        open_metadata(f"sqlite://{tmp_path}/file/below.db", new_version)


@pytest.mark.usefixtures("aws_environment")
async def test_aws_urls_are_opened_without_a_connection() -> None:
    assert isinstance(open_objects("s3://bucket"), S3Objects)
    assert isinstance(open_objects("s3://bucket/some/prefix/"), S3Objects)
    assert isinstance(open_metadata("dynamodb://table", new_version), DynamoMetadata)


async def test_each_memory_url_opens_a_new_store() -> None:
    first, second = open_objects("memory://"), open_objects("memory://")

    await first.put("a", [b"1"])
    await second.put("a", [b"2"])

    assert isinstance(first, MemoryObjects)
    assert isinstance(open_metadata("memory://", new_version), MemoryMetadata)


@pytest.mark.parametrize(
    "url",
    [
        *("", "file://", "file:///", "file://host/dir", "file:dir", "s3://", "s3:///key", "s3:b"),
        *("memory://name", "ftp://host/dir", "sqlite:///file", "dynamodb://table"),
    ],
)
def test_other_object_urls_are_refused_with_a_list_of_valid_forms(url: str) -> None:
    with pytest.raises(InvalidConfig, match="s3://bucket/prefix"):
        open_objects(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "sqlite://", "sqlite:///", "sqlite://file", "sqlite:file", "dynamodb://", "/file"),
        *(
            "dynamodb://table/more",
            "dynamodb://t",
            "dynamodb://a b c",
            "memory://name",
            "postgres://host/db",
            "s3://bucket",
        ),
    ],
)
def test_other_metadata_urls_are_refused_with_a_list_of_valid_forms(url: str) -> None:
    with pytest.raises(InvalidConfig, match="dynamodb://table"):
        open_metadata(url, new_version)


def test_local_stores_do_not_import_an_aws_sdk(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from storage.stores.opening import open_metadata, open_objects\n"
        f"open_objects({str(tmp_path)!r})\n"
        f"open_metadata('sqlite://{tmp_path}/m.db', str)\n"
        "assert not {'boto3', 'aioboto3', 'botocore', 'obstore'} & sys.modules.keys()\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
