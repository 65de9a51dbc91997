"""A log that was written and put away, to be damaged bit by bit, and what is known of it."""

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.integration.processes import Api, Json
from tests.torture.deployment import AS_OBJECTS, command, deployment, fsck, stored_keys

PARTITIONS: Final = 2
SOUND: Final = "sound"
"""A topic of its own lane, in objects of its own, which nobody damages."""

DAMAGED: Final = "damaged"

CORRUPT: Final = {"CORRUPT_MESSAGE", "OBJECT_MISSING"}


@dataclass(frozen=True)
class Shelved:
    """Where a log is, and what it holds: the value of every partition and offset."""

    folder: Path
    values: dict[tuple[str, int, int], str]

    @property
    def database(self) -> Path:
        return self.folder / "data" / "metadata.db"

    def copy_to(self, folder: Path) -> "Shelved":
        shutil.copytree(self.folder / "data", folder / "data")
        return Shelved(folder, self.values)

    def files(self, ending: str) -> list[Path]:
        """Return the objects of the topic that may be damaged."""
        found = sorted((self.folder / "data" / "zones").rglob(f"*{ending}"))
        if ending == ".seg":
            topic_id = bytes.fromhex(self.topic_id)
            return [path for path in found if topic_id in path.read_bytes()]
        return [path for path in found if self.topic_id in str(path)]

    @property
    def topic_id(self) -> str:
        """Return the identifier of the topic that may be damaged."""
        # Only that one is compacted: z/log/<topic id>/<partition>/<offset>-<id>.parquet
        [found] = {path.parts[-3] for path in (self.folder / "data").rglob("*.parquet")}
        return found


def shelve(folder: Path) -> Shelved:
    """Write a log of every kind of object: hot segments, pages, roots, Parquet, lists of it."""
    values: dict[tuple[str, int, int], str] = {}

    def write(api: Api, topic: str, rounds: int) -> None:
        for turn in range(rounds):
            # Larger than what goes into the head, and each request an object.
            sent = [{"value": f"{topic}.{turn}.{n}." + "x" * 50, "partition": n} for n in (0, 1)]
            for result in api.produce(topic, sent):
                at = (topic, result["partition"], result["base_offset"])
                values[at] = sent[result["partition"]]["value"]

    here = deployment(folder, AS_OBJECTS)
    with here.start() as gateway, Api(gateway.url) as api:
        for name in (SOUND, DAMAGED):
            api.topic(PARTITIONS, name=name)
        write(api, DAMAGED, 50)
    code, out, err = command(folder, "compact", "--force", "--no-spark", DAMAGED)
    assert code == 0, (out, err)
    with here.start() as gateway, Api(gateway.url) as api:
        write(api, DAMAGED, 120)
        write(api, SOUND, 5)
    sweep(folder)
    assert fsck(folder)["ok"]
    return Shelved(folder, values)


def sweep(folder: Path) -> tuple[int, str]:
    """Let `riacho sweep` remove all that it may; return its exit code, and what it said."""
    code, out, err = command(folder, "sweep", "--min-age", "0s", "--unsafe", "--no-spark")
    return code, out + err


def check_sweep_takes_nothing(shelved: Shelved) -> None:
    before = stored_keys(shelved.folder)
    code, told = sweep(shelved.folder)
    assert stored_keys(shelved.folder) >= before, (code, told)


@contextmanager
def flipped(path: Path, position: int, bit: int = 0) -> Iterator[None]:
    """Flip a bit of a file, and back again."""
    flip(path, position, bit)
    try:
        yield
    finally:
        flip(path, position, bit)


def flip(path: Path, position: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def position_in(path: Path, rng: random.Random) -> int:
    """Choose a byte that the index refers to: of a segment one of its records."""
    size = path.stat().st_size
    if path.suffix != ".seg":
        return rng.randrange(size)
    return rng.randrange(size // 8, size // 2)  # Behind them is a directory that nothing needs.


def read_what_can_be(api: Api, shelved: Shelved, topic: str) -> tuple[int, list[Json]]:
    """Read every offset; return how many could be, and what was said of the others.

    Raises if anything that was read is not what was written.
    """
    count, problems = 0, []
    for (name, partition, offset), value in shelved.values.items():
        if name != topic:
            continue
        reply = api.get(topic, partition, offset=offset, max_records=1)
        if reply.status_code != 200:
            problem = json.loads(reply.text)
            problems.append({"status": reply.status_code, **problem})
            continue
        read = [(record["offset"], record["value"]) for record in reply.json()["records"]]
        assert read == [(offset, value)], f"wrong at {partition}/{offset}: {read}"
        count += 1
    return count, problems
