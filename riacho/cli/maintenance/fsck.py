"""`riacho fsck`: check that every zone holds what it should, whole."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from riacho.cli.output import Output, OutputOption, bad_usage, note, print_json, print_table

if TYPE_CHECKING:
    from service.jobs.runners.choice import How
    from service.settings import Settings
    from storage.maintenance.fsck import LaneReport

FINDINGS_SHOWN_MAX = 50
Show = Callable[[int, int], None]
"""Called with the number of lanes and of objects that were checked since the last call."""


def fsck(
    topics: Annotated[list[str], typer.Argument(help="Names of topics; none: all.")] = [],  # noqa: B006
    sizes_only: Annotated[
        bool, typer.Option("--sizes-only", help="Do not read objects; only compare sizes.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Check lanes with Spark's workers.")
    ] = False,
    master: Annotated[str, typer.Option(help="Spark master; default: local[*].")] = "",
    data: Annotated[Path, typer.Option(envvar="RIACHO_DATA", help="As for `riacho serve`.")] = Path(
        "riacho-data"
    ),
    zones: Annotated[str, typer.Option(envvar="RIACHO_ZONES", help="As for `riacho serve`.")] = "",
    metadata: Annotated[
        str, typer.Option(envvar="RIACHO_METADATA", help="As for `riacho serve`.")
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that every zone holds what it should: objects, sizes, checksums, offsets.

    It reads the stores, not a gateway, and changes nothing. Gateways may go on serving.

    \b
    riacho fsck
    riacho fsck orders --sizes-only
    riacho fsck --spark --master local[8]
    riacho fsck --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho -o json
    """
    from service.jobs.fsck import document
    from service.jobs.runners.choice import How
    from service.settings import Settings

    settings = Settings(data=data, zones=zones, metadata=metadata)
    if master and not spark:
        raise bad_usage("only --spark has a master", "--master")
    how = How(spark=True, master=master) if spark else None
    lanes, total = asyncio.run(_check(settings, topics, sizes_only, how))
    if output is Output.JSON:
        print_json(document(lanes, total))
    else:
        _print(total)
    if not total.is_ok:
        wrong = sum(n for name, n in total.problems.items() if name != "behind")
        note(f"riacho: {wrong} things are wrong in {lanes} lanes")
        raise typer.Exit(1)


async def _check(
    settings: "Settings", topics: list[str], sizes_only: bool, how: "How | None"
) -> "tuple[int, LaneReport]":
    from service.jobs.fsck import opened
    from service.jobs.progress import NoMeter
    from service.jobs.runners.choice import Runners
    from service.jobs.stores import ship
    from service.world.clock import real_world
    from storage.maintenance.fsck import LaneReport

    total = LaneReport()
    async with opened(settings, real_world(), topics) as check, AsyncExitStack() as stack:
        found = None
        if how is not None:
            runners = Runners(how, ship(settings), NoMeter())
            runner = await (await stack.enter_async_context(runners)).for_bytes(0)
            found = check.run_on(runner, sizes_only=sizes_only)
        with _progress(check.lane_count) as show:
            found = found or check.run(sizes_only=sizes_only, seen=lambda n: show(0, n))
            async for lane in found:
                total.add(lane.report)
                show(1, 0)
        return check.lane_count, total


def _print(total: "LaneReport") -> None:
    kinds = ("missing", "size", "checksum", "unreachable", "behind")
    rows = [
        (name, zone.objects, zone.size_bytes, *(zone.problems[kind] for kind in kinds))
        for name, zone in sorted(total.zones.items())
    ]
    print_table(("zone", "objects", "bytes", *kinds), rows)
    shown = [each for each in total.findings if each.problem != "behind"][:FINDINGS_SHOWN_MAX]
    if shown:
        typer.echo()
        print_table(
            ("problem", "zone", "object", "detail"),
            [(each.problem, each.zone, each.key, each.detail) for each in shown],
        )


@contextmanager
def _progress(lane_count: int) -> Iterator[Show]:
    if not sys.stderr.isatty():
        yield lambda _lanes, _objects: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=lane_count)
        done = 0

        def show(lanes: int, objects: int) -> None:
            nonlocal done
            done += objects
            progress.update(task, advance=lanes, description=f"{done} objects checked")

        yield show
