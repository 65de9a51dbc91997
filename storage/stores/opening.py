"""From a URL to a store.

    objects    file:///dir   /dir   ./dir   s3://bucket/prefix   memory://
    metadata   sqlite:///file               dynamodb://table     memory://

The options of a bucket override AWS's variables, so that zones can be in several regions, services
or accounts: s3://bucket/prefix?region=eu-west-1&endpoint=https://…&profile=name

Paths in `file:` and `sqlite:` URLs are absolute. The modules that need an AWS SDK are imported
only for URLs that need them: the import takes most of a second, and a laptop needs none.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

from storage.errors import InvalidConfig
from storage.stores.metadata import MetadataStore
from storage.stores.objects import ObjectStore

OBJECT_FORMS: Final = "file:///dir, a plain path, s3://bucket/prefix or memory://"
S3_OPTIONS: Final = ("endpoint", "region", "profile")
METADATA_FORMS: Final = "sqlite:///file, dynamodb://table or memory://"
_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")  # As DynamoDB demands.


def open_objects(url: str, *, now_ms: Callable[[], int] = lambda: 0) -> ObjectStore:
    """Return the object store that `url` names; every `memory://` is a new one.

    Raises `InvalidConfig` if there is no such form, `StoreUnavailable` without credentials.
    """
    scheme, separator, rest = url.partition("://")
    if not separator and url and not url.startswith(("s3:", "file:", "memory:")):
        from storage.stores.directory import DirectoryObjects

        return DirectoryObjects(Path(url).expanduser())
    match scheme:
        case "file" if rest.startswith("/") and rest.strip("/"):
            from storage.stores.directory import DirectoryObjects

            return DirectoryObjects(_absolute(unquote(rest)))
        case "s3" if not rest.startswith("/") and rest:
            from storage.stores.s3 import S3Objects

            path, _, query = rest.partition("?")
            bucket, _, prefix = path.partition("/")
            own = _s3_options(url, query)
            return S3Objects(
                bucket,
                prefix,
                endpoint=own.get("endpoint"),
                region=own.get("region"),
                profile=own.get("profile"),
            )
        case "memory" if not rest:
            from storage.stores.memory import MemoryObjects

            return MemoryObjects(now_ms)
    raise InvalidConfig(f"{url!r} names no object store; use {OBJECT_FORMS}")


def open_metadata(url: str, new_version: Callable[[], str]) -> MetadataStore:
    """Return the metadata store that `url` names; every `memory://` is a new one.

    Raises `InvalidConfig` if there is no such form, `StoreUnavailable` if a file cannot be opened.
    """
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite" if rest.startswith("/") and rest.strip("/"):
            from storage.stores.sqlite.table import SqliteMetadata

            return SqliteMetadata(_absolute(rest), new_version)
        case "dynamodb" if _TABLE.fullmatch(rest):
            from storage.stores.dynamodb.table import DynamoMetadata

            return DynamoMetadata(rest, new_version)
        case "memory" if not rest:
            from storage.stores.memory import MemoryMetadata

            return MemoryMetadata(new_version)
    raise InvalidConfig(f"{url!r} names no metadata store; use {METADATA_FORMS}")


def _s3_options(url: str, query: str) -> dict[str, str]:
    """Return the options of the URL: another region, service or account than the environment's."""
    try:
        options = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    except ValueError:
        options = {"": query}
    unknown = [name for name in options if name not in S3_OPTIONS]
    if unknown:
        raise InvalidConfig(
            f"{url!r}: {unknown[0] or query!r} is not known; behind ? may be"
            f" {', '.join(f'{name}=…' for name in S3_OPTIONS)}, joined by &"
        )
    return options


def _absolute(path: str) -> Path:
    # Two slashes in front, as in `sqlite:////file`, would mean something else to POSIX.
    return Path("/" + path.lstrip("/"))
