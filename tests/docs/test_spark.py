"""docs/spark.md says what happens: its walk-through is walked, its numbers are the code's."""

import io
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from riacho.cli.main import cli
from riacho.spark.options import CREDENTIALS, URL
from riacho.spark.read import direct, planning, spans
from riacho.spark.read import options as read_options
from riacho.spark.sql import sql
from riacho.spark.write import options as sink_options
from riacho.spark.write import rows as sink_rows
from service.jobs import commands, lease, progress
from service.jobs.runners import choice, spark_session
from service.jobs.sweep import sweep
from storage.formats import compacted
from storage.maintenance import sweep as sweeping
from storage.maintenance.compaction import job, plan, reading
from storage.topics.config import SETTINGS
from tests.docs.markdown import ROOT, Block, blocks, table
from tests.docs.running import READERS_ADDRESS, run, shell
from tests.docs.transcripts import comparable
from tests.gateway import GatewayProcess, start_gateway
from tests.riacho.spark.queries import BUSY_MAX, suppress_if_too_busy
from tests.torture.sizes import only_proof

DOCUMENT = ROOT / "docs/spark.md"
PROGRAM = ROOT / "docs/examples/python/spark_orders.py"
MIB = 1024 * 1024

_VARIES = re.compile(r"[\d.]+ (?:s:|B|KiB|objects|without use)|\(\d+/s\)|ratio [\d.]+|^a +\d+ +\d+")
"""How long it took, how large it is, and how records arrived together: as luck would have it."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path) as started:
        # Where a reader finds it who started the gateway in the same directory.
        (tmp_path / "riacho-data").symlink_to(tmp_path / "data")
        yield started


def walk(first: str, behind: str) -> list[tuple[Block, Block | None]]:
    """Return what is to be run between two headings, each with the answer printed below it."""
    text = DOCUMENT.read_text()
    start, end = (text[: text.index(f"\n{name}\n")].count("\n") for name in (first, behind))
    shown = [block for block in blocks(DOCUMENT) if start < block.line < end]
    steps: list[tuple[Block, Block | None]] = []
    for block, following in pairwise([*shown, None]):
        assert block is not None
        if block.info in ("sh", "python") and block.text != PROGRAM.read_text():
            is_answer = following is not None and following.info in ("text", "json")
            steps.append((block, following if is_answer else None))
    return steps


def stable(text: str, kind: str) -> Any:
    if kind == "json":
        return comparable(text, kind)
    return [_VARIES.sub("<>", line.rstrip()) for line in text.strip().splitlines()]


class Walk:
    """Someone who walks through the document, in the directory of the gateway."""

    def __init__(self, gateway: GatewayProcess, folder: Path) -> None:
        self.gateway = gateway
        self.folder = folder
        shutil.copy(PROGRAM, folder)

    def follow(self, steps: list[tuple[Block, Block | None]]) -> None:
        for step, answer in steps:
            printed = self.do(step)
            if answer is not None:
                assert stable(printed, answer.info) == stable(answer.text, answer.info), step

    def do(self, step: Block) -> str:
        if step.info == "sh":
            return self.sh(step.text)
        here = step.text.replace(f"http://{READERS_ADDRESS}", self.gateway.url)
        return run([sys.executable, "-c", here], self.gateway, self.folder)

    def sh(self, text: str) -> str:
        return shell(text, self.gateway, self.folder)


class SharedWalk(Walk):
    """Has commands that would start Spark find the shared session, and so run them here."""

    def sh(self, text: str) -> str:
        if not re.search("^(riacho sql|python) ", text, re.MULTILINE):
            return super().sh(text)
        return "".join(self._line(line) for line in re.split(r"(?<!\\)\n", text.strip()))

    def _line(self, line: str) -> str:
        match shlex.split(line.replace("\\\n", "")):
            case ["riacho", "sql", *_] as command:
                found = CliRunner().invoke(cli, command[1:], env={"RIACHO_URL": self.gateway.url})
                assert found.exit_code == 0, found.stderr
                return found.stdout
            case ["python", program, checkpoint]:
                # The JVM was started in another directory.
                argv = [program, str(self.folder / checkpoint)]
                # A program whose worker started too late for Spark goes on from its checkpoint.
                for _ in range(BUSY_MAX):
                    with suppress_if_too_busy():
                        return self._program(argv)
                raise AssertionError("the machine is too busy for Spark")
        return super().sh(line)

    def _program(self, argv: list[str]) -> str:
        # The session is for others, too.
        source = (self.folder / argv[0]).read_text().replace("spark.stop()", "")
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as printed:
            patch.setattr(sys, "argv", argv)
            patch.setenv("RIACHO_URL", self.gateway.url)
            patch.setenv("PYSPARK_PYTHON", sys.executable)
            exec(compile(source, argv[0], "exec"), {"__name__": "__main__"})
        return printed.getvalue()


WITHOUT_SPARK = walk("## See it happen", "### A question")
WITH_SPARK = walk("### A question", "## Topic settings")


@pytest.mark.slow
def test_compaction_retention_and_sweep_happen_as_described(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    assert len(WITHOUT_SPARK) == 8
    Walk(gateway, tmp_path).follow(WITHOUT_SPARK)


@only_proof
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("spark")
def test_queries_and_the_program_print_what_is_shown(
    gateway: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(WITH_SPARK) == 3
    SharedWalk(gateway, tmp_path).follow(WITH_SPARK)


@only_proof
@pytest.mark.slow
@pytest.mark.timeout(1200)  # It starts three JVMs.
def test_the_whole_walk_through_happens_as_described(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    Walk(gateway, tmp_path).follow([*WITHOUT_SPARK, *WITH_SPARK])


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]*)`", cell))


def test_settings_are_those_of_topics() -> None:
    documented = {
        row[0].strip("`"): row[1].strip("`") for row in table(DOCUMENT, "## Topic settings")
    }
    assert documented == {name: SETTINGS[name].default for name in documented}
    old = re.compile(r"cleanup|retention|segment|compaction|dirty|columns")
    of_jobs = {name for name in SETTINGS if old.search(name) and SETTINGS[name].has_effect}
    assert documented.keys() == of_jobs


def test_options_of_reads_are_those_of_the_code() -> None:
    rows = table(DOCUMENT, "### Reading")
    named = set().union(*(names(row[0]) for row in rows))
    known = {
        *URL[:1],
        *CREDENTIALS,
        *read_options._BOTH,
        *read_options._BATCH,
        *read_options._STREAM,
    }
    foreign = {name for name in named if name.startswith(("kafka", "fetchOffset", "groupId"))}
    assert named - foreign == known
    for row in rows:
        if row[1] == "batch":
            assert names(row[0]) <= set(read_options._BATCH)
        if row[1] == "stream":
            assert names(row[0]) <= set(read_options._STREAM)
    assert ["`maxTriggerDelay`", "stream", f"`{read_options._TRIGGER_DELAY_MS // 60_000}m`"] in [
        row[:3] for row in rows
    ]


def test_options_of_writes_are_those_of_the_code() -> None:
    rows = table(DOCUMENT, "### Writing")
    named = set().union(*(names(row[0]) for row in rows))
    foreign = {name for name in named if name.startswith("kafka")}
    # `queryName` is Spark's own, which hands it down.
    known = {"url", *CREDENTIALS, *sink_options._KNOWN}
    assert named - foreign == known - {"queryName"}
    assert {name.rstrip("*") for name in foreign} == set(sink_options._SKIPPED) - {"path"}
    [timeout] = [row[2] for row in rows if row[0] == "`transactionTimeoutMs`"]
    assert timeout == f"`{sink_options.TIMEOUT_MS_DEFAULT}`"


def test_options_of_jobs_are_those_of_the_commands() -> None:
    offered: dict[str, set[str]] = {}
    everything: Any = typer.main.get_command(cli)
    jobs = ("compact", "retention", "sweep", "maintain", "fsck")
    for name in jobs:
        for parameter in everything.commands[name].params:
            for option in (*parameter.opts, *parameter.secondary_opts):
                offered.setdefault(option, set()).add(name)
    documented: dict[str, set[str]] = {}
    for row in _options():
        of = names(row[1]) if not row[1].startswith("all") else set(jobs) - names(row[1])
        documented |= {option.split()[0]: of for option in names(row[0])}
    assert documented == {option: offered[option] for option in documented}
    elsewhere = {"--data", "--zones", "--metadata", "--output", "--help", "--sizes-only", "topics"}
    assert offered.keys() - elsewhere == documented.keys()


def _options() -> list[list[str]]:
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `-")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_numbers_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", DOCUMENT.read_text())
    for promised in (
        f"The lease is renewed every {lease.LEASE_S / 3:g} s",
        f"It expires after {lease.LEASE_S:g} s without renewal",
        f"a line every {progress.LINE_S:g} s",
        f"less than {choice.SPARK_BYTES_MIN // MIB} MiB to do",
        f"up to {sweeping.CANDIDATES_MAX:,} old objects",
        f"one per core, at most {choice.THREADS_MAX}",
        f"{reading.READS_AT_ONCE_MAX} range requests at a time",
        f"chunks of {reading.CHUNK_BYTES // MIB} MiB",
        f"a row group of about {compacted.ROW_GROUP_BYTES // MIB} MiB",
        f"about {plan.RANGE_BYTES_MAX // MIB} MiB of stored data are in a range",
        f"ranges of {plan.RANGE_BYTES_MIN // MIB} to {plan.RANGE_BYTES_MAX // MIB} MiB",
        f"when they are at least {plan.HOT_BYTES_MIN // MIB} MiB",
        f"{job.WAVE_SLICES_MAX:,} slices, about 100 bytes each",
        f"{spark_session.JVM_MEMORY.removesuffix('g')} GiB for the driver",
        f"{direct.AHEAD_BYTES // MIB} MiB ahead, as stored",
        f"batches of {spans.BATCH_BYTES // MIB} MiB or {spans.BATCH_PIECES} slices",
        f"two requests of {sink_rows.REQUEST_BYTES // MIB} MiB",
        f"by presigned ranges, about {planning.TASK_BYTES // MIB} MiB each",
        f"below {sweep.SAFE_AGE_MS_MIN // 60_000} minutes only with `--unsafe`",
        f"newest {sql.SAMPLE_RECORDS:,} records of up to {sql.SAMPLE_PARTITIONS} partitions",
        f"{sql.VIEWS_MAX} topics in a query",
        f"a Java runtime, {spark_session.JAVA_MIN} or later",
        f"130, {commands.STOPPED} |",
    ):
        assert promised in text, promised
    assert sweep.MIN_AGE_MS == 3_600_000
    assert plan.RANGES_PER_WORKER == 3
