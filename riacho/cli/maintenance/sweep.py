"""`riacho sweep`: remove objects that nothing refers to."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from functools import partial
from typing import Annotated

import typer

from riacho.cli.maintenance.jobs import (
    DEFAULT_DATA,
    Data,
    DryRun,
    Master,
    Metadata,
    Spark,
    Wait,
    Zones,
    run,
)
from riacho.cli.output import Output, OutputOption, bad_usage


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
    """Delete objects that nothing refers to: left by crashes, retention and compaction.

    It works on the stores, not through a gateway. Gateways may go on serving. It may be stopped
    at any moment, and continues when it is run again.

    \b
    riacho sweep --dry-run
    riacho sweep --limit 100000
    riacho sweep --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho --spark
    """
    from service.jobs import commands
    from service.jobs.runners.choice import How
    from service.settings import Settings
    from service.world import durations

    try:
        min_age_ms = round(durations.seconds(min_age) * 1000)
    except ValueError as error:
        raise bad_usage(str(error), "--min-age") from None
    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=spark, master=master, wait_s=wait)
    job = partial(
        commands.sweep,
        settings,
        how,
        min_age_ms=min_age_ms,
        limit=limit,
        unsafe=unsafe,
        dry_run=dry_run,
    )
    run(job, as_json=output is Output.JSON)
