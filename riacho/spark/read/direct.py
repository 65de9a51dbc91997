"""Reads bytes directly from the bucket: `file://` if it is a directory, else presigned HTTP.

Bytes that are in no bucket yet are contained in their URL: `data:`. Where clients may not read the
bucket, the URL is a path of the gateway, which needs the credentials that it takes everywhere.

Every failure is an `Unread`. The caller then locates the bytes again (the URL may have expired,
the object may have been compacted), or lets the gateway read them.
"""

import base64
import http.client
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from storage.errors import RiachoError

T = TypeVar("T")
R = TypeVar("R")

TIMEOUT_S: Final = 30.0
READS_AT_ONCE_MAX: Final = 8
DATA: Final = "data:application/octet-stream;base64,"
"""Prefix of the URL for bytes that are in no bucket."""

AHEAD_BYTES: Final = 16 * 1024 * 1024
"""How many bytes are read ahead of decoding, over a network."""


class Unread(Exception):
    """The bytes could not be read from their URL."""


class Direct:
    """Reads ranges of objects by their URLs, with the connections of one task."""

    def __init__(self, read_gateway: Callable[[str, int, int], bytes] | None = None) -> None:
        """Read paths of the gateway by `read_gateway`, from a position up to another."""
        self._read_gateway = read_gateway
        self._connections = local()
        self._opened: list[http.client.HTTPConnection] = []
        self._pool: ThreadPoolExecutor | None = None

    def read(self, url: str, start: int, end: int, front: bytes = b"") -> memoryview:
        """Return `front` followed by the bytes `start <= position < end`, or raise `Unread`."""
        # Not a bytearray, which would be filled with zeros first.
        data: memoryview = np.empty(len(front) + end - start, np.uint8).data
        data[: len(front)] = front
        target = data[len(front) :]
        if not len(target):
            return data
        try:
            if url.startswith(DATA):
                _read_data(url, start, target)
            elif url.startswith("file:"):
                _read_file(url, start, target)
            elif url.startswith("/"):
                self._read_path(url, start, target)
            else:
                self._read_http(url, start, target)
        except (OSError, http.client.HTTPException, ValueError, RiachoError) as error:
            raise Unread(f"{_shown(url)}: {error!r}") from error
        return data

    def ahead(
        self, items: Sequence[T], size: Callable[[T], int], read: Callable[[T], R]
    ) -> Iterator[tuple[T, Callable[[], R]]]:
        """Yield each item with a function that returns its `read` result; reads run ahead.

        At most about `AHEAD_BYTES` are read ahead.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(READS_AT_ONCE_MAX, "riacho-read")
        waiting: list[tuple[T, Future[R]]] = []
        held_bytes = 0
        try:
            for item in items:
                while waiting and held_bytes + size(item) > AHEAD_BYTES:
                    held_bytes -= size(waiting[0][0])
                    yield _first(waiting)
                waiting.append((item, self._pool.submit(read, item)))
                held_bytes += size(item)
            while waiting:
                yield _first(waiting)
        finally:
            for _, future in waiting:
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for connection in self._opened:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _read_http(self, url: str, start: int, target: memoryview) -> None:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {"range": f"bytes={start}-{start + len(target) - 1}"}
        kept: dict[str, http.client.HTTPConnection] = self._connections.__dict__
        address = f"{parts.scheme}://{parts.netloc}"
        connection = kept.pop(address, None)
        if connection is not None:
            try:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
            except (OSError, http.client.HTTPException):
                # The server may have closed an idle connection; retry on a new one.
                connection.close()
                connection = None
        if connection is None:
            connection = self._connect(parts.scheme, parts.netloc)
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            connection.close()
            raise OSError(f"status {response.status}")
        _fill(response, target)
        if response.read():
            raise OSError("more came than was asked for")
        kept[address] = connection

    def _read_path(self, path: str, start: int, target: memoryview) -> None:
        if self._read_gateway is None:
            raise OSError("it is a path of a gateway")
        found = self._read_gateway(path, start, start + len(target))
        if len(found) != len(target):
            raise OSError(f"{len(found)} bytes came for {len(target)}")
        target[:] = found

    def _connect(self, scheme: str, address: str) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(address, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        self._opened.append(connection)
        return connection


def _first(waiting: list[tuple[T, Future[R]]]) -> tuple[T, Callable[[], R]]:
    item, future = waiting.pop(0)
    return item, future.result


def _read_file(url: str, start: int, target: memoryview) -> None:
    with Path(url2pathname(urlsplit(url).path)).open("rb", buffering=0) as file:
        file.seek(start)
        _fill(file, target)


def _read_data(url: str, start: int, target: memoryview) -> None:
    data = base64.b64decode(url[len(DATA) :], validate=True)[start : start + len(target)]
    if len(data) < len(target):
        raise OSError(f"{len(target) - len(data)} bytes are missing")
    target[:] = data


def _fill(source: Any, target: memoryview) -> None:
    position = 0
    while position < len(target):
        count = source.readinto(target[position:])
        if not count:
            raise OSError(f"{len(target) - position} bytes are missing")
        position += count


def _shown(url: str) -> str:
    """Return the URL without its signature, which is secret, and without records in it."""
    return DATA if url.startswith(DATA) else url.partition("?")[0]


def is_local(urls: Iterable[str]) -> bool:
    return all(url.startswith(("file:", DATA)) for url in urls)
