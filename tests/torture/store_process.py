"""Stores in a process of their own, so that a test can put a failing disk under them.

    python -m tests.torture.store_process DIRECTORY

It reads a line, does what it says, and answers with one: `ok`, or the name of what was raised.

    item KEY        puts an item that nobody waits for, `item! KEY` one that is flushed
    object KEY      puts an object
"""

import asyncio
import os
import sys
from pathlib import Path

from storage.errors import RiachoError
from storage.stores.directory import DirectoryObjects
from storage.stores.metadata import Put
from storage.stores.sqlite.table import SqliteMetadata

VALUE = b"value" * 100


async def serve(folder: Path) -> None:
    table = SqliteMetadata(folder / "metadata.db", lambda: os.urandom(12).hex())
    objects = DirectoryObjects(folder / "zone")
    print("ok", flush=True)  # noqa: T201
    while line := await asyncio.to_thread(sys.stdin.readline):
        what, key = line.split()
        try:
            if what == "object":
                await objects.put(key, [VALUE])
            else:
                put = Put(key, VALUE, expected=None, can_wait=what == "item")
                await table.transact([put])
        except RiachoError as error:
            print(type(error).__name__, flush=True)  # noqa: T201
        else:
            print("ok", flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
