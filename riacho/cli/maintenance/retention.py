"""`riacho retention`: let log starts move to where the topics' configuration wants them."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from functools import partial

from riacho.cli.maintenance.jobs import (
    DEFAULT_DATA,
    Data,
    DryRun,
    Metadata,
    Topics,
    Wait,
    Zones,
    run,
)
from riacho.cli.output import Output, OutputOption


def retention(
    topics: Topics = [],  # noqa: B006
    dry_run: DryRun = False,
    wait: Wait = 0.0,
    data: Data = DEFAULT_DATA,
    zones: Zones = "",
    metadata: Metadata = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop records that are older than retention.ms, or more than retention.bytes.

    Log starts move; the objects behind them go with the next `riacho sweep`. It works on the
    stores, not on a gateway. Gateways may go on serving.

    \b
    riacho retention --dry-run
    riacho retention orders
    riacho retention --zones a=s3://bucket-a --metadata dynamodb://riacho -o json
    """
    from service.jobs import commands
    from service.jobs.choice import How
    from service.settings import Settings

    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=False, wait_s=wait)
    job = partial(commands.retention, settings, how, topics, dry_run=dry_run)
    run(job, as_json=output is Output.JSON)
