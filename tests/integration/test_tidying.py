"""Jobs compact, hide and sweep under load, and are killed and put to sleep: nobody is harmed.

Two processes run jobs all the time, two gateways serve. What was acknowledged stays where it is,
compacted topics end as a plain dictionary would, and no garbage is left.

In every run of the suite, one job is killed and one put to sleep, under little load, on directories
and SQLite. All of it, and on S3 and DynamoDB: `make proof PART=tidying`. `RIACHO_TIDYING_ROUNDS`
says how often something is killed or put to sleep there; 60 take some minutes.
"""

import logging
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.integration.load import load, wait_for_acks
from tests.integration.processes import Api, cloud, embedded
from tests.integration.test_transactions import begin, done, post, stage
from tests.integration.tidying import Janitors, Place
from tests.integration.tidying_load import Book, Fading, Load, Table, Work, watch, working
from tests.integration.zoned import until
from tests.torture.sizes import FULL, some

log = logging.getLogger(__name__)

ROUNDS = int(os.environ.get("RIACHO_TIDYING_ROUNDS", "12"))
TURNS = range(ROUNDS if FULL else 2)
"""What happens, by number: see `Scene.disturb`."""
THREADS = 2 if FULL else 0
"""That send as fast as they can, besides those who pause."""
PARTITIONS = 3
FADING_MS = 8_000
SWEPT_S_MAX = 600.0
"""Jobs take half a minute each where others use the machine, and one must come to its end."""
LATER_MS = 600_000
"""Longer than anybody reads who reads all the time."""

SLOW = [pytest.mark.aws, pytest.mark.slow]

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(params=some(["embedded", pytest.param("cloud", marks=SLOW)], "embedded"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "embedded":
        return Place(embedded(tmp_path))
    return Place(cloud(tmp_path, request.getfixturevalue("local_aws")))


class Scene:
    """Topics of every kind, those who use them, and those who tidy up."""

    def __init__(self, place: Place) -> None:
        self.place = place
        with Api(place.urls[0]) as api:
            # Two lanes, so that some requests need two commits.
            self.book = Book(api.topic(PARTITIONS, "plain", config={"lane.partitions": 2}), 3)
            self.book.is_patient = place.deployment.kind == "cloud"
            self.kept = _compacted(api, "kept", LATER_MS)
            self.quick = _compacted(api, "quick", 0)
            config = {"retention.ms": FADING_MS}
            self.fading = Fading(api.topic(1, "fading", config=config), FADING_MS)
        self.tables = (self.kept, self.quick)
        self.topics = ["plain", "kept", "quick", "fading"]
        # While what fades is merged with what is new, it is never old, for minutes at this size.
        compacted = self.topics if FULL else ["plain", "kept", "quick"]
        self.janitors = Janitors(place, compacted, random.Random(ROUNDS))

    def readers(self) -> list[Work]:
        urls = self.place.urls
        found = [watch(urls, self.topics), self.fading.look(urls, "fading")]
        for url in urls if FULL else urls[:1]:
            found += [self.book.consume(url), self.book.look(urls, url), self.kept.follow(url)]
            found += [table.look(urls, url) for table in self.tables]
        return found

    def writers(self) -> list[Work]:
        found = [self.fading.write(self.place.urls[0])]
        for number, url in enumerate(self.place.urls):
            found.append(self.book.number(url, f"numbered-{number}"))
            found.append(self.book.transact(url, f"transacted-{number}"))
            found += [table.write(url, f"{table.topic}-{number}") for table in self.tables]
        return found

    def open_transaction(self) -> str:
        """Begin a transaction that lasts longer than objects are young; return its name."""
        with Api(self.place.urls[0]) as api:
            name = begin(api, timeout_ms=LATER_MS)
            for partition in range(PARTITIONS):
                done(stage(api, name, "plain", f"slow.{partition}", partition=partition))
            return name

    def commit(self, name: str) -> None:
        with Api(self.place.urls[1]) as api:
            ended = done(post(api, f"/transactions/{name}/commit"))
        for each in ended["results"]:
            value = f"slow.{each['partition']}"
            self.book.placed(value, each["partition"], each["base_offset"])

    def disturb(self, turn: int) -> None:
        match turn % 6:
            case 0 | 2 | 4:
                self.janitors.kill_one()
            case 1 | 5:
                self.janitors.put_one_to_sleep()
            case 3:
                self.place.restart(turn // 6)
        wait_for_acks(self.book, 20)

    def drop_tombstones(self) -> None:
        with Api(self.place.urls[0]) as api:
            config = {"config": {"delete.retention.ms": 0}}
            reply = api.http.patch(f"/v1/topics/{self.kept.topic}", json=config)
            assert reply.status_code == 200, reply.text

    def check(self) -> None:
        """Ask a gateway that remembers nothing."""
        with self.place.start() as gateway, Api(gateway.url) as api:
            self.book.check(api)
            for table in self.tables:
                table.check(api)
            assert self.fading.check(api) > 0


def _compacted(api: Api, name: str, tombstones_ms: int) -> Table:
    config = {
        "cleanup.policy": "compact",
        "delete.retention.ms": tombstones_ms,
        "min.cleanable.dirty.ratio": 0,
        "lane.partitions": 2,
    }
    return Table(api.topic(PARTITIONS, name, config=config), PARTITIONS)


def test_jobs_die_and_sleep_while_everybody_works(place: Place) -> None:
    place.start_two()
    try:
        scene = Scene(place)
        try:
            with working(scene.readers()) as reading:
                with (
                    working(scene.writers()) as writing,
                    load(scene.book, place.urls, threads=THREADS),
                ):
                    tidy_under_load(scene, [reading, writing])
                for table in scene.tables:
                    table.finish(place.urls[0])
            scene.drop_tombstones()
        finally:
            scene.janitors.kill()
    finally:
        place.kill()
    tell(scene)
    check_everything(scene)


def tidy_under_load(scene: Scene, doing: Sequence[Load]) -> None:
    janitors = scene.janitors
    slow = scene.open_transaction()
    for _ in range(2):
        janitors.start()
    for turn in TURNS:
        scene.disturb(turn)
        for each in doing:
            each.check()
    # One that is put to sleep behind its last write has nothing to lose.
    for _ in range(5):
        if janitors.lost():
            break
        janitors.put_one_to_sleep()

    def is_enough() -> bool:
        for each in doing:
            each.check()
        janitors.check()
        return janitors.swept() > 0 and any(told["offsets"] for told in janitors.told("retention"))

    until(is_enough, "nothing is old enough to be swept", SWEPT_S_MAX)
    scene.commit(slow)
    assert janitors.lost()
    assert janitors.killed
    assert janitors.slept


def tell(scene: Scene) -> None:
    janitors = scene.janitors
    log.info(
        "%d acknowledged, %d compactions, %d objects swept; janitors: %d killed, %d slept, %d lost",
        len(scene.book.acked) + sum(len(table.known) for table in scene.tables),
        sum(told["partitions"] for told in janitors.told("compact")),
        janitors.swept(),
        janitors.killed,
        janitors.slept,
        janitors.lost(),
    )


def check_everything(scene: Scene) -> None:
    # The first compaction meets the last tombstones, the second may drop them.
    compact = ["compact", "--no-spark", "--force", *scene.topics]
    for told in scene.place.run(["fsck"], compact, compact):
        assert told["ok"], told
    scene.check()
    # Nobody writes any more.
    sweep = ["sweep", "--no-spark", "--unsafe", "--min-age", "0s"]
    swept, found, checked = scene.place.run(sweep, ["list"], ["fsck"])
    assert swept["complete"], swept
    assert swept["objects_removed"] > 0
    assert {key for key in found["listed"] if not key.endswith(".marker")} == {*found["referenced"]}
    assert checked["ok"], checked
    scene.check()
