"""docs/replication.md says what happens: disks are pulled and put back; numbers are the code's."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost_model import CountedObjects, CountedTable
from service.controller.catch_up import SETTLE_S
from service.controller.controller import Controller
from service.controller.live_gateways import LiveGateways
from service.settings import MIB, Settings
from service.world.clock import real_world
from storage.topics.config import SETTINGS
from storage.topics.topics import Topics
from storage.zones.health import HEDGE_S_MAX, HEDGE_S_MIN
from storage.zones.zones import Zones
from tests.docs.markdown import ROOT
from tests.docs.running import shell
from tests.docs.transcripts import commands_in, comparable, start_as_told, transcripts
from tests.gateway import GatewayProcess

DOCUMENT = ROOT / "docs/replication.md"

_ONLY_WHETHER = {"OBJECTS", "BYTES", "BEHIND", "NOTE"}
"""Columns that differ from run to run: what counts is whether there is anything."""

_GONE = {"MS"}


@pytest.fixture
def zoned(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_as_told(DOCUMENT, tmp_path) as started:
        yield started


def rows(text: str) -> list[dict[str, Any]]:
    """Return the rows of a table that a command printed; `EPOCH` counts from the first row's."""
    title, *lines = [re.split(r"\s{2,}", line.strip()) for line in text.strip().splitlines()]
    found = [dict(zip_longest(title, cells, fillvalue="")) for cells in lines]
    first = found[0].get("EPOCH", "0")
    for row in found:
        if "EPOCH" in row:
            row["EPOCH"] = str(int(row["EPOCH"]) - int(first))
        row |= {name: row[name] not in ("", "0") for name in _ONLY_WHETHER & row.keys()}
    return [{name: row[name] for name in row.keys() - _GONE} for row in found]


def stable(text: str, kind: str) -> Any:
    return rows(text) if kind == "text" and text[:1].isupper() else comparable(text, kind)


@pytest.mark.slow
def test_the_walk_through_happens_as_it_is_told(zoned: GatewayProcess, tmp_path: Path) -> None:
    told = transcripts(DOCUMENT)
    assert len(told) == 8
    for each in told:
        kind = each.answer.info
        printed = shell(commands_in(each, tmp_path), zoned, tmp_path)
        assert stable(printed, kind) == stable(each.answer.text, kind), each.commands


def test_numbers_are_those_of_the_code() -> None:
    text = re.sub(r"\s+", " ", DOCUMENT.read_text())
    defaults = Settings.model_construct()
    lag_ms = int(SETTINGS["replica.lag.time.max.ms"].default)
    assert f"`replica.lag.time.max.ms`, {lag_ms:,} by default" in text
    assert f"{defaults.controller_resync_bytes_per_s // MIB} MiB a second, four concurrent" in text
    assert defaults.controller_resync_copies == 4
    assert f"{defaults.controller_step_s:g} s at a time between probes" in text
    assert f"every {defaults.controller_interval_s:g} s. There is nothing to configure" in text
    assert f"did not change for {defaults.controller_lease_s:g} s" in text
    assert defaults.controller_probe_failures_max == 2
    assert defaults.controller_scan_s == 30
    assert f"no earlier than {SETTLE_S:g} s after the wipe" in text
    assert f"another zone too after {HEDGE_S_MIN:g} to {HEDGE_S_MAX:g} s" in text


@pytest.mark.anyio
async def test_a_tick_costs_what_scale_says() -> None:
    world, settings = real_world(), Settings()
    stores = {name: CountedObjects(keep=True) for name in "abc"}
    zones, table = Zones(stores), CountedTable(world.new_version)
    topics = Topics(table, zones.names, world.new_id, world.now_ms, world.monotonic_s)
    await LiveGateways(settings, table, world, zones).beat()
    controller = Controller(settings, zones, table, topics, world, "holder")
    await controller.tick()  # The first writes the markers and the items of the zones.
    before = [(store.index_puts, store.index_gets) for store in stores.values()]
    writes = table.writes
    assert await controller.tick()
    after = [(store.index_puts, store.index_gets) for store in stores.values()]
    spent = [(a[0] - b[0], a[1] - b[1]) for a, b in zip(after, before, strict=True)]
    assert spent == [(1, 2)] * 3
    assert table.writes - writes == 1
