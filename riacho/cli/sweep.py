"""`riacho sweep`: remove objects that nothing refers to."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import re
from typing import TYPE_CHECKING, Annotated

import typer

from riacho.cli.jobs import DEFAULT_DATA, Data, DryRun, Master, Metadata, Spark, Wait, Zones, run
from riacho.cli.output import Output, OutputOption, bad_usage

if TYPE_CHECKING:
    from service.jobs.work import Outcome

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d{1,9})(ms|s|m|h|d)")


def sweep(
    dry_run: DryRun = False,
    min_age: Annotated[
        str, typer.Option("--min-age", help="Leave younger objects alone: 90s, 30m, 1h, 2d.")
    ] = "1h",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Objects to remove at most.")
    ] = None,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Allow less than 15 minutes, and a table without topics."),
    ] = False,
    spark: Spark = None,
    master: Master = "",
    wait: Wait = 0.0,
    data: Data = DEFAULT_DATA,
    zones: Zones = "",
    metadata: Metadata = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove objects that nothing refers to: what crashes, retention and compaction left.

    It works on the stores, not on a gateway. Gateways may go on serving. Stopped at any moment,
    it goes on when it is run again.

    \b
    riacho sweep --dry-run
    riacho sweep --limit 100000
    riacho sweep --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho --spark
    """
    from service.jobs.choice import How
    from service.settings import Settings

    min_age_ms = _milliseconds(min_age)
    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=spark, master=master, wait_s=wait)

    async def job() -> "Outcome":
        from service.jobs import sweep as jobs
        from service.jobs.work import begun

        async with begun(settings, "sweep", how, changes=not dry_run) as work:
            return await jobs.sweep(
                work, min_age_ms=min_age_ms, limit=limit, is_unsafe=unsafe, spark=spark
            )

    run(job, as_json=output is Output.JSON)


def _milliseconds(text: str) -> int:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise bad_usage(f"{text!r} is no duration; write it like 90s, 30m, 1h or 2d", "--min-age")
    return int(found[1]) * _UNITS[found[2]]
