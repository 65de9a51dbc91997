"""docs/spark.md says what happens: its walk-through is walked, its numbers are the code's."""

import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer.main

from riacho.cli.main import cli
from riacho.spark.options import URL
from riacho.spark.read import direct, planning, spans
from riacho.spark.read import options as read_options
from riacho.spark.sql import sql
from riacho.spark.write import options as sink_options
from riacho.spark.write import rows as sink_rows
from service.jobs import choice, commands, lease, progress, spark, sweep
from storage.formats import compacted
from storage.maintenance import sweep as sweeping
from storage.maintenance.compaction import job, plan, reading
from storage.topics.config import SETTINGS
from tests.docs.markdown import ROOT, Block, blocks, table
from tests.docs.running import READERS_ADDRESS, run, shell
from tests.docs.transcripts import comparable
from tests.gateway import GatewayProcess, start_gateway

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


def walk() -> list[tuple[Block, Block | None]]:
    """Return what is to be run, each with the answer that is printed below it."""
    text = DOCUMENT.read_text()
    start, end = (
        text[: text.index(f"\n## {name}\n")].count("\n")
        for name in ("See it happen", "Topic settings")
    )
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


@pytest.mark.slow
@pytest.mark.timeout(1200)  # It starts three JVMs.
def test_the_walk_through_happens_as_it_is_told(gateway: GatewayProcess, tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    steps = walk()
    assert len(steps) == 11
    for step, answer in steps:
        if step.info == "sh":
            printed = shell(step.text, gateway, tmp_path)
        else:
            here = step.text.replace(f"http://{READERS_ADDRESS}", gateway.url)
            printed = run([sys.executable, "-c", here], gateway, tmp_path)
        if answer is not None:
            assert stable(printed, answer.info) == stable(answer.text, answer.info), step


def names(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]*)`", cell))


def test_settings_are_those_of_topics() -> None:
    documented = {
        row[0].strip("`"): row[1].strip("`") for row in table(DOCUMENT, "## Topic settings")
    }
    assert documented == {name: SETTINGS[name].default for name in documented}
    old = re.compile(r"cleanup|retention|segment|compaction|dirty")
    assert documented.keys() == {name for name in SETTINGS if old.search(name)}


def test_options_of_reads_are_those_of_the_code() -> None:
    rows = table(DOCUMENT, "### Reading")
    named = set().union(*(names(row[0]) for row in rows))
    known = {*URL[:1], *read_options._BOTH, *read_options._BATCH, *read_options._STREAM}
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
    assert named - foreign == {"url", *sink_options._KNOWN} - {"queryName"}
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
        f"was not heard of for {lease.LEASE_S:g} s is replaced",
        f"a line every {progress.LINE_S:g} s",
        f"less than {choice.SPARK_BYTES_MIN // MIB} MiB to do",
        f"up to {sweeping.CANDIDATES_MAX:,} old objects",
        f"one per core, {choice.THREADS_MAX} at most",
        f"{reading.READS_AT_ONCE_MAX} range requests at a time",
        f"chunks of {reading.CHUNK_BYTES // MIB} MiB",
        f"a row group of about {compacted.ROW_GROUP_BYTES // MIB} MiB",
        f"about {plan.RANGE_BYTES_MAX // MIB} MiB of stored data are in a range",
        f"ranges of {plan.RANGE_BYTES_MIN // MIB} to {plan.RANGE_BYTES_MAX // MIB} MiB",
        f"when that is {plan.HOT_BYTES_MIN // MIB} MiB at least",
        f"{job.WAVE_SLICES_MAX:,} slices, about 100 bytes each",
        f"{spark.JVM_MEMORY.removesuffix('g')} GiB for the driver",
        f"{direct.AHEAD_BYTES // MIB} MiB ahead, as stored",
        f"batches of {spans.BATCH_BYTES // MIB} MiB or {spans.BATCH_PIECES} slices",
        f"two requests of {sink_rows.REQUEST_BYTES // MIB} MiB",
        f"by presigned ranges, about {planning.TASK_BYTES // MIB} MiB each",
        f"below {sweep.SAFE_AGE_MS_MIN // 60_000} minutes only with `--unsafe`",
        f"newest {sql.SAMPLE_RECORDS:,} records of up to {sql.SAMPLE_PARTITIONS} partitions",
        f"{sql.VIEWS_MAX} topics in a query",
        f"a Java runtime, {spark.JAVA_MIN} or later",
        f"130, {commands.STOPPED} |",
    ):
        assert promised in text, promised
    assert sweep.MIN_AGE_MS == 3_600_000
    assert plan.RANGES_PER_WORKER == 3
