"""Lines in a log: some, not many."""

import io

import pytest

from service.jobs.progress import LINE_S, LineMeter, shown, size
from tests.storage.helpers.worlds import Clock


def test_a_log_gets_a_line_every_few_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    meter = LineMeter("compact", stream, clock.monotonic_s)

    meter.planned(200)
    for n in range(100):
        clock.now_s += LINE_S / 10
        meter.done(2, f"{n} records")

    lines = stream.getvalue().splitlines()
    assert lines[0] == "compact: 10 %, 9 records"
    assert lines[-1] == "compact: 100 %, 99 records"
    assert len(lines) == 10


def test_a_stream_that_nobody_reads_stops_nothing() -> None:
    stream = io.StringIO()
    with shown("compact", Clock().monotonic_s, stream) as meter:
        stream.close()
        meter.say("something")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()

    with shown("compact", Clock().monotonic_s, stream) as meter:
        meter.planned(10)
        meter.done(5, "5 records [of 10]")
        meter.say("something [else]")

    assert "compact" in stream.getvalue()
    assert "something [else]" in stream.getvalue()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
