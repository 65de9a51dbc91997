"""`riacho maintain`: retention, compaction and sweep, once."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from functools import partial

from riacho.cli.maintenance.jobs import (
    DEFAULT_DATA,
    Concurrency,
    Data,
    Master,
    Metadata,
    Spark,
    Wait,
    Zones,
    run,
)
from riacho.cli.output import Output, OutputOption


def maintain(
    spark: Spark = None,
    master: Master = "",
    concurrency: Concurrency = None,
    wait: Wait = 0.0,
    data: Data = DEFAULT_DATA,
    zones: Zones = "",
    metadata: Metadata = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Keep the log tidy: retention, then compaction, then sweep; once.

    `riacho serve --maintain-every 5m` does it again and again.

    \b
    riacho maintain
    riacho maintain --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho
    """
    from service.jobs import commands
    from service.jobs.runners.choice import How
    from service.settings import Settings

    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=spark, master=master, concurrency=concurrency, wait_s=wait)
    job = partial(commands.maintain, settings, how)
    run(job, as_json=output is Output.JSON)
