"""The audit log: what a line says, what it never says, and how floods are limited."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.process.logs import configure_audit_log, configure_logging
from service.security.audit.lines import (
    KIND_LINES_MAX,
    KINDS_MAX,
    NAME_CHARS_MAX,
    VERDICT_LINES_MAX,
    Actor,
    Audit,
)
from service.world.clock import World
from tests.storage.helpers.worlds import HandClock

pytestmark = pytest.mark.anyio

ANA = Actor(principal="User:ana", credential_id="k1", door="key", peer="10.0.0.7", request_id="r-1")


class Book:
    """An audit log whose lines are kept, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = HandClock()
        world = World(
            now_ms=self.clock.now_ms,
            monotonic_s=self.clock.monotonic_s,
            sleep=self.clock.sleep,
            random=lambda: 0.5,
            random_bytes=bytes,
        )
        self.raw: list[bytes] = []
        self.audit = Audit(world, [self.raw.append])

    @property
    def lines(self) -> list[dict]:
        return [json.loads(each) for each in self.raw]

    def left_out(self) -> int:
        return sum(line.get("left_out", 0) for line in self.lines)


async def test_a_refusal_is_one_line_that_says_who_what_and_why() -> None:
    book = Book()

    book.audit.refused(
        "TOPIC_AUTHORIZATION_FAILED",
        ANA,
        operation="WRITE",
        resource_type="TOPIC",
        resource="orders",
        why="no ACL allows it",
    )

    assert book.lines == [
        {
            "at": "1970-01-01T00:16:40.000Z",
            "event": "refused",
            "verdict": "TOPIC_AUTHORIZATION_FAILED",
            "principal": "User:ana",
            "credential": "k1",
            "door": "key",
            "peer": "10.0.0.7",
            "operation": "WRITE",
            "resource_type": "TOPIC",
            "resource": "orders",
            "request_id": "r-1",
            "why": "no ACL allows it",
        }
    ]


async def test_a_change_says_what_was_changed() -> None:
    book = Book()

    book.audit.changed(
        ANA,
        operation="ALTER_CONFIGS",
        resource_type="CLUSTER",
        resource="kafka-cluster",
        details={"user": "User:bob", "producer_byte_rate": 1000},
    )

    line = book.lines[0]
    assert (line["event"], line["verdict"]) == ("changed", "DONE")
    assert line["details"] == {"user": "User:bob", "producer_byte_rate": 1000}


async def test_a_name_cannot_forge_a_line_nor_fill_the_disk() -> None:
    book = Book()

    book.audit.refused("X", ANA, resource='a"}\n{"event": "changed"' + "y" * 10_000 + "\ud800")
    book.audit.refused("X", Actor(principal="\ud800"))

    assert len(book.raw) == 2
    assert b"\n" not in b"".join(book.raw)
    assert len(book.lines[0]["resource"]) == NAME_CHARS_MAX
    assert book.lines[1]["principal"] == "?"


async def test_a_flood_of_one_kind_is_limited_and_counted() -> None:
    book = Book()
    for _ in range(1000):
        book.audit.refused("SASL_AUTHENTICATION_FAILED", ANA)
    # Another principal is another kind.
    book.audit.refused("SASL_AUTHENTICATION_FAILED", Actor(principal="User:bob"))

    await book.clock.advance(1.0)

    kinds = [(line["event"], line["principal"]) for line in book.lines]
    assert kinds == [
        *[("refused", "User:ana")] * KIND_LINES_MAX,
        ("refused", "User:bob"),
        ("left_out", "User:ana"),
    ]
    assert book.left_out() == 1000 - KIND_LINES_MAX


async def test_a_flood_from_many_addresses_hides_no_other_verdict() -> None:
    book = Book()
    for number in range(5 * KINDS_MAX):
        book.audit.refused("SASL_AUTHENTICATION_FAILED", Actor(peer=f"10.0.{number}"))
    book.audit.refused("TOPIC_AUTHORIZATION_FAILED", ANA, resource="orders")

    assert len(book.lines) == VERDICT_LINES_MAX + 1
    assert book.lines[-1]["resource"] == "orders"

    await book.clock.advance(1.0)
    assert book.left_out() == 5 * KINDS_MAX - VERDICT_LINES_MAX
    assert len(book.lines) <= VERDICT_LINES_MAX + 1 + KINDS_MAX + 1


async def test_the_next_second_has_room_again() -> None:
    book = Book()
    for _ in range(KIND_LINES_MAX + 5):
        book.audit.refused("X", ANA)
    # Frozen for a while: no task has run, and the next refusal writes the count.
    book.clock.now_s += 60
    book.audit.refused("X", ANA)

    assert [line["event"] for line in book.lines[-2:]] == ["left_out", "refused"]
    assert book.left_out() == 5
    await book.audit.aclose()
    assert book.left_out() == 5


async def test_changes_are_never_left_out() -> None:
    book = Book()
    for _ in range(10 * VERDICT_LINES_MAX):
        book.audit.changed(ANA, operation="CREATE")

    assert len(book.lines) == 10 * VERDICT_LINES_MAX


async def test_what_is_left_out_is_counted_at_the_end() -> None:
    book = Book()
    for _ in range(KIND_LINES_MAX + 3):
        book.audit.refused("X", ANA)

    await book.audit.aclose()

    assert book.left_out() == 3


@pytest.fixture
def _logs() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("riacho", "riacho.audit")]
    before = [(each, each.handlers[:], each.propagate, each.level) for each in loggers]
    yield
    for each, handlers, propagate, level in before:
        for handler in each.handlers:
            if handler not in handlers:
                handler.close()
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


@pytest.mark.usefixtures("_logs")
async def test_lines_are_json_whatever_the_format_and_level_of_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("error", "text")
    assert configure_audit_log("on")

    Audit(Book().audit._world).refused("X", ANA)

    assert json.loads(capsys.readouterr().err)["verdict"] == "X"


@pytest.mark.usefixtures("_logs")
async def test_a_file_can_be_rotated(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    assert configure_audit_log(f"file:{path}")
    audit = Audit(Book().audit._world)

    audit.refused("FIRST", ANA)
    path.rename(tmp_path / "audit.1")
    audit.refused("SECOND", ANA)

    assert json.loads((tmp_path / "audit.1").read_text())["verdict"] == "FIRST"
    assert json.loads(path.read_text())["verdict"] == "SECOND"
    assert (tmp_path / "audit.1").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("_logs")
async def test_off_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not configure_audit_log("off")

    Audit(Book().audit._world).refused("X", ANA)
    Audit(Book().audit._world, []).changed(ANA)

    assert capsys.readouterr().err == ""
