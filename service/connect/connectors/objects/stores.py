"""Where files go: a bucket, or a folder below `RIACHO_CONNECT_FILES`."""

import asyncio
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from service.connect.config.values import Values
from service.connect.connectors.objects.formats.spool import Spool
from service.connect.data.errors import RetriableFault, TaskFault
from storage.errors import ObjectExists, RiachoError
from storage.stores.objects import ObjectStore

REPLACE_ATTEMPTS_MAX: Final = 3


def folder_of(url: str, files: Path | None) -> Path:
    """Return the folder of a `file:` URL. Raises `ValueError` if it is not below `files`."""
    if files is None:
        raise ValueError("file: URLs need RIACHO_CONNECT_FILES, a folder, on this machine")
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or not parts.path.startswith("/"):
        raise ValueError("must be file:///FOLDER, below RIACHO_CONNECT_FILES")
    names = [name for name in unquote(parts.path).split("/") if name]
    if any(name in (".", "..") or "\0" in name for name in names):
        raise ValueError("must not contain . or ..")
    root = files.resolve()
    folder = root.joinpath(*names)
    if not folder.resolve().is_relative_to(root):
        raise ValueError("leads out of RIACHO_CONNECT_FILES by a link")
    return folder


class Files:
    """Stores whole files by name. A file that is there with the same bytes is stored already."""

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    async def store(self, name: str, spool: Spool, *, may_replace: bool) -> None:
        """Store a file; it is durable then. Raises `RetriableFault`, or `TaskFault`.

        A file with other bytes under this name is replaced only with `may_replace`.
        """
        await asyncio.to_thread(self._check, name)
        try:
            for _ in range(REPLACE_ATTEMPTS_MAX):
                try:
                    return await self._put(name, spool)
                except ObjectExists:
                    if not may_replace:
                        break
                    await self._store.delete([name])
        except RiachoError as error:
            raise RetriableFault(str(error)) from error
        raise TaskFault(
            f"{name} is there with other bytes: another connector writes below the same topics.dir,"
            " or this one did with other settings, or another task has taken over"
        )

    async def close(self) -> None:
        await self._store.close()

    async def _put(self, name: str, spool: Spool) -> None:
        if spool.is_on_disk:
            await asyncio.to_thread(spool.spill)
            await self._store.put_file(name, spool.path)
        else:
            await self._store.put(name, [spool.whole()])

    def _check(self, name: str) -> None:
        """Refuse names that a link leads out of the folder with."""
        if self._folder is not None:
            folder = (self._folder / name).parent.resolve()
            if not folder.is_relative_to(self._folder.resolve()):
                raise TaskFault(f"{name} leads out of the folder of files by a link")


def open_files(values: Values, files: Path | None) -> Files:
    """Return the store that a configuration names. Raises `TaskFault`."""
    url = values["store.url"] or ""
    if url.startswith("file:"):
        from storage.stores.directory import DirectoryObjects

        try:
            folder = folder_of(url, files)
        except ValueError as error:
            raise TaskFault(f"store.url: {error}") from None
        return Files(DirectoryObjects(folder), folder)
    from storage.stores.s3 import S3Objects
    from storage.stores.signed_urls import AwsKey

    key_id, secret = values["aws.access.key.id"], values["aws.secret.access.key"]
    try:
        store = S3Objects(
            values["s3.bucket.name"],
            endpoint=url or None,
            region=values["s3.region"],
            key=AwsKey(key_id=key_id, secret=secret) if key_id else None,
        )
    except RiachoError as error:
        raise TaskFault(str(error)) from error
    return Files(store)
