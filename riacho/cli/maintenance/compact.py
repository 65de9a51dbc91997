"""`riacho compact`: merge new slices into large segments, and drop outdated records."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from functools import partial
from typing import Annotated

import typer

from riacho.cli.maintenance.jobs import (
    DEFAULT_DATA,
    Concurrency,
    Data,
    DryRun,
    Master,
    Metadata,
    Spark,
    Topics,
    Wait,
    Zones,
    run,
)
from riacho.cli.output import Output, OutputOption


def compact(
    topics: Topics = [],  # noqa: B006
    force: Annotated[
        bool, typer.Option("--force", help="Though less is new than min.cleanable.dirty.ratio.")
    ] = False,
    dry_run: DryRun = False,
    spark: Spark = None,
    master: Master = "",
    concurrency: Concurrency = None,
    wait: Wait = 0.0,
    data: Data = DEFAULT_DATA,
    zones: Zones = "",
    metadata: Metadata = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Rewrite slices into Parquet segments; of compacted topics, keep each key's last record.

    It works on the stores, not through a gateway. Gateways may go on serving. A named topic is
    compacted even if little of it is new.

    \b
    riacho compact
    riacho compact orders --force
    riacho compact --spark --master local[8] --zones a=s3://bucket --metadata dynamodb://riacho
    """
    from service.jobs import commands
    from service.jobs.runners.choice import How
    from service.settings import Settings

    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=spark, master=master, concurrency=concurrency, wait_s=wait)
    job = partial(commands.compact, settings, how, topics, force=force, dry_run=dry_run)
    run(job, as_json=output is Output.JSON)
