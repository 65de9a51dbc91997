"""Bits that flip in what is stored: never a wrong record, always a finding, nothing is swept."""

import random
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.gateway import free_port
from tests.integration.load import load, new_ledger, wait_for_acks
from tests.integration.processes import Api
from tests.torture import flips
from tests.torture.deployment import AS_OBJECTS, command, deployment, fsck
from tests.torture.flips import CORRUPT, DAMAGED, SOUND, Shelved, flipped
from tests.torture.sizes import ROUNDS, only_proof, some

pytestmark = pytest.mark.slow

FILES_MAX = 5
RANDOM_FLIPS = 40
KINDS = [".seg", ".page", ".root", ".segments", ".parquet"]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Shelved:
    return flips.shelve(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def shelved(pristine: Shelved, tmp_path: Path) -> Shelved:
    return pristine.copy_to(tmp_path)


@pytest.mark.parametrize("kind", some(KINDS, ".seg"))
def test_a_flipped_bit_of_an_object_is_found_and_harms_nothing_else(
    shelved: Shelved, kind: str
) -> None:
    rng = random.Random(kind)
    files = shelved.files(kind)
    assert files, f"there is no object {kind}"
    files = rng.sample(files, min(FILES_MAX, len(files)))
    zones = shelved.folder / "data" / "zones" / "a"
    with deployment(shelved.folder, AS_OBJECTS).start() as gateway, Api(gateway.url) as api:
        with ExitStack() as damage:
            for path in files:
                damage.enter_context(flipped(path, flips.position_in(path, rng)))
            found = fsck(shelved.folder)
            assert not found["ok"]
            named = {each["key"] for each in found["findings"]}
            damaged = {str(path.relative_to(zones)) for path in files}
            # Besides, offsets are missing of partitions whose index cannot be read.
            assert {key for key in named if (zones / key).exists()} == damaged, found["findings"]
            count, problems = flips.read_what_can_be(api, shelved, DAMAGED)
            assert problems, "nothing was noticed"
            assert {each["code"] for each in problems} <= CORRUPT, problems[0]
            assert not any(each["retryable"] for each in problems)
            assert flips.read_what_can_be(api, shelved, SOUND)[1] == []
            api.produce(SOUND, [{"value": "more", "partition": 0}])
            flips.check_sweep_takes_nothing(shelved)
        again, problems = flips.read_what_can_be(api, shelved, DAMAGED)
        assert problems == [], "what is whole again is not read again"
        assert again > count
    assert fsck(shelved.folder)["ok"]


def place_of_key(shelved: Shelved, collection: str, rest: str) -> int:
    """Return where in the file the key of an item is; behind it are its value and version."""
    return shelved.database.read_bytes().index((collection + rest).encode()) + len(collection)


def keys_of(shelved: Shelved) -> dict[str, tuple[str, str]]:
    """Return the items whose loss would lose a topic."""
    return {
        "head": (f"head/{shelved.topic_id}", "00000"),
        "topic": ("topic", DAMAGED),
    }


@pytest.mark.parametrize("item", some(["head", "topic"], "head"))
def test_a_flipped_bit_of_a_key_serves_nothing_wrong(shelved: Shelved, item: str) -> None:
    place = place_of_key(shelved, *keys_of(shelved)[item])
    with (
        flipped(shelved.database, place + 2),
        deployment(shelved.folder, AS_OBJECTS).start() as gateway,
        Api(gateway.url) as api,
    ):
        count, _ = flips.read_what_can_be(api, shelved, DAMAGED)
        assert count == 0
        assert flips.read_what_can_be(api, shelved, SOUND)[1] == []


@pytest.mark.parametrize("item", ["head", "topic"])
def test_a_flipped_bit_of_a_key_is_found_and_stops_the_sweep(shelved: Shelved, item: str) -> None:
    place = place_of_key(shelved, *keys_of(shelved)[item])
    with flipped(shelved.database, place + 2):
        assert not fsck(shelved.folder)["ok"]
        flips.check_sweep_takes_nothing(shelved)
    assert fsck(shelved.folder)["ok"]


def test_a_flipped_bit_of_a_head_is_a_finding_that_names_it(shelved: Shelved) -> None:
    collection, rest = keys_of(shelved)["head"]
    with flipped(shelved.database, place_of_key(shelved, collection, rest) + len(rest) + 40):
        found = fsck(shelved.folder)
        assert not found["ok"]
        assert any(shelved.topic_id in each["key"] for each in found["findings"]), found


@only_proof
def test_a_flipped_bit_of_a_head_stops_the_sweep_and_serves_nothing_wrong(
    shelved: Shelved,
) -> None:
    collection, rest = keys_of(shelved)["head"]
    place = place_of_key(shelved, collection, rest) + len(rest)
    with flipped(shelved.database, place + 40):
        assert command(shelved.folder, "fsck")[0] != 0
        flips.check_sweep_takes_nothing(shelved)
        with deployment(shelved.folder, AS_OBJECTS).start() as gateway, Api(gateway.url) as api:
            count, problems = flips.read_what_can_be(api, shelved, DAMAGED)
            assert count == 0
            assert {each["code"] for each in problems} <= CORRUPT, problems[0]
            assert flips.read_what_can_be(api, shelved, SOUND)[1] == []
    assert fsck(shelved.folder)["ok"]


@only_proof
@pytest.mark.timeout(1800)
def test_bits_that_flip_anywhere_in_the_database_let_nothing_be_swept(shelved: Shelved) -> None:
    rng = random.Random(1)
    size = shelved.database.stat().st_size
    for _ in range(RANDOM_FLIPS):
        position, bit = rng.randrange(size), rng.randrange(8)
        kept = shelved.database.read_bytes()
        flips.flip(shelved.database, position, bit)
        flips.check_sweep_takes_nothing(shelved)
        for log in shelved.database.parent.glob("metadata.db-*"):
            log.unlink()
        shelved.database.write_bytes(kept)
    assert fsck(shelved.folder)["ok"]


def test_a_malformed_database_is_not_called_retryable(shelved: Shelved) -> None:
    with deployment(shelved.folder, AS_OBJECTS).start() as gateway, Api(gateway.url) as api:
        for number in range(100):
            api.topic(name=f"filler-{number:03d}-{'x' * 100}")
    collection, rest = keys_of(shelved)["head"]
    page = place_of_key(shelved, collection, rest) // 4096 * 4096
    kept = shelved.database.read_bytes()
    assert b"topicfiller-000" not in kept[page : page + 4096], "the start would meet it"
    # The kind of a page: there is none of this number.
    flips.flip(shelved.database, page, 6)
    with deployment(shelved.folder, AS_OBJECTS).start() as gateway, Api(gateway.url) as api:
        _, problems = flips.read_what_can_be(api, shelved, DAMAGED)
        assert problems
        assert not any(each["retryable"] for each in problems), problems[0]
        assert {each["status"] for each in problems} == {500}


@only_proof
def test_bits_that_flip_in_the_log_of_the_database_serve_nothing_wrong(tmp_path: Path) -> None:
    for turn in range(ROUNDS):
        folder = tmp_path / str(turn)
        folder.mkdir()
        here, port = deployment(folder), free_port()
        gateway = here.start(port=port)
        try:
            ledger = new_ledger(gateway)
            with load(ledger, [gateway.url], seed=turn):
                wait_for_acks(ledger, 200)
                gateway.kill()
            rng = random.Random(turn)
            wal = folder / "data" / "metadata.db-wal"
            flips.flip(wal, rng.randrange(wal.stat().st_size // 2, wal.stat().st_size))
            gateway = here.start(port=port)
            with Api(gateway.url) as api:
                for partition in range(ledger.partitions):
                    for record in api.read_all(ledger.topic, partition):
                        at = (partition, record["offset"])
                        value = ledger.acked.get(at)
                        assert value == record["value"] or record["value"] in ledger.unknown
            assert fsck(folder)["ok"]
        finally:
            gateway.kill()


def test_the_places_of_keys_are_right(shelved: Shelved) -> None:
    collection, rest = keys_of(shelved)["head"]
    with flipped(shelved.database, place_of_key(shelved, collection, rest)):
        with closing(sqlite3.connect(shelved.database)) as db:
            rests = {
                rest for (rest,) in db.execute("SELECT rest FROM item WHERE collection='head'")
            }
        assert rest not in rests
