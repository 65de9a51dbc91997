"""Lower bounds of this machine: the same bytes, without a stream around them.

They have the shape of peers, so that they take their turns between them, but they are no servers:
they run in this process, and `cpu_s` counts this process while they are measured. They only write.

| floor | for each batch |
|---|---|
| memcpy | its bytes are copied once |
| write | its bytes are appended to a file |
| write + fsync | the same, and the file is flushed; one file for each batch in flight |
| object store alone | `DirectoryObjects.put` of its bytes: a new file, on the disk |
| codec alone | a body as a gateway gets it becomes LZ4 slices as it stores them; one core |
"""

import asyncio
import itertools
import os
import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.peers.peer import CACHED, SYNCED, NotHere, Rate
from benchmarks.peers.riacho import ARROW, JSON, arrow_body, chunks, json_body
from service.http.bodies.produce import decode_produce
from storage.formats import slices
from storage.stores.directory import DirectoryObjects

MEMORY = "memory"
"""Durability of bytes that never leave the process: lost when it ends."""


class Floor:
    name: str
    durability: str

    def __init__(self) -> None:
        self._folder = Path()
        self._cpu_s = 0.0

    def about(self) -> str:
        return "in this process"

    def start(self, folder: Path) -> None:
        self._folder = folder

    def stop(self) -> None:
        pass

    def cpu_s(self) -> float:
        return self._cpu_s

    def make(self, topic: str, partitions: int = 1) -> None:
        (self._folder / topic).mkdir()

    def produce(
        self, topic: str, values: Sequence[bytes], batch: int, in_flight: int, seconds: float
    ) -> Rate:
        bodies = [self._body(chosen) for chosen in chunks(values, batch)]
        folder = self._folder / topic
        cpu_s, began_s = time.process_time(), time.perf_counter()
        batches = self._write(folder, bodies, in_flight, began_s + seconds)
        took_s = time.perf_counter() - began_s
        self._cpu_s += time.process_time() - cpu_s
        # Floors are faster than disks are large.
        shutil.rmtree(folder)
        folder.mkdir()
        return Rate(batches * batch, took_s)

    def _body(self, values: Sequence[bytes]) -> bytes:
        return b"".join(values)

    def _write(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        """Return how many batches were written until then."""
        raise NotImplementedError

    def fetch(self, topic: str, records: int, batch: int) -> Rate:
        raise NotHere("floors only write")

    def delays(self, topic: str, value: bytes, rate: float, seconds: float) -> list[float]:
        raise NotHere("floors only write")


class Memcpy(Floor):
    name = "floor: memcpy"
    durability = MEMORY

    def _write(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        target = memoryview(bytearray(len(bodies[0])))

        def copy(body: bytes) -> None:
            target[:] = body

        return repeated(copy, bodies, until_s)


class Write(Floor):
    name = "floor: write"
    durability = CACHED
    _is_flushed = False

    def _write(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        def work(number: int) -> int:
            opened = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

            def append(body: bytes) -> None:
                written = os.write(opened, body)
                assert written == len(body), (written, len(body))
                if self._is_flushed:
                    os.fsync(opened)

            try:
                return repeated(append, bodies, until_s)
            finally:
                os.close(opened)

        with ThreadPoolExecutor(in_flight) as pool:
            return sum(pool.map(work, range(in_flight)))


class WriteSynced(Write):
    name = "floor: write + fsync"
    durability = SYNCED
    _is_flushed = True


class ObjectStoreAlone(Floor):
    name = "floor: object store alone"
    durability = SYNCED

    def _write(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        return asyncio.run(self._put(folder, bodies, in_flight, until_s))

    async def _put(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        store = DirectoryObjects(folder)
        numbers = itertools.count()

        async def work() -> int:
            done = 0
            while time.perf_counter() < until_s:
                number = next(numbers)
                await store.put(f"{number % 256:02x}/{number}", [bodies[number % len(bodies)]])
                done += 1
            return done

        try:
            return sum(await asyncio.gather(*(work() for _ in range(in_flight))))
        finally:
            await store.close()


class CodecAlone(Floor):
    durability = MEMORY
    _content_type: str

    def _write(self, folder: Path, bodies: list[bytes], in_flight: int, until_s: float) -> int:
        def convert(body: bytes) -> None:
            batch = decode_produce(body, self._content_type, now_ms=1).batch
            slices.encode(slices.cut(batch, batch.nbytes), "lz4")

        return repeated(convert, bodies, until_s)


class JsonCodec(CodecAlone):
    name = "floor: codec alone, JSON"
    _content_type = JSON

    def _body(self, values: Sequence[bytes]) -> bytes:
        return json_body(values)


class ArrowCodec(CodecAlone):
    name = "floor: codec alone, Arrow"
    _content_type = ARROW

    def _body(self, values: Sequence[bytes]) -> bytes:
        return arrow_body(values)


def repeated(step: Callable[[bytes], None], bodies: Sequence[bytes], until_s: float) -> int:
    """Do `step` with one after the other, round and round, and return how often it was done."""
    done = 0
    while time.perf_counter() < until_s:
        step(bodies[done % len(bodies)])
        done += 1
    return done


FLOORS: tuple[type[Floor], ...] = (
    Memcpy,
    Write,
    WriteSynced,
    ObjectStoreAlone,
    JsonCodec,
    ArrowCodec,
)
