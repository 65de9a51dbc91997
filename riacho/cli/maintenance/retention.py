"""`riacho retention`: move log starts as the configuration of the topics requires."""

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
    """Delete records that are older than retention.ms or exceed retention.bytes.

    This moves log starts; the next `riacho sweep` deletes the objects. It works on the
    stores, not through a gateway. Gateways may go on serving.

    \b
    riacho retention --dry-run
    riacho retention orders
    riacho retention --zones a=s3://bucket-a --metadata dynamodb://riacho -o json
    """
    from service.jobs import commands
    from service.jobs.runners.choice import How
    from service.settings import Settings

    settings = Settings(data=data, zones=zones, metadata=metadata)
    how = How(spark=False, wait_s=wait)
    job = partial(commands.retention, settings, how, topics, dry_run=dry_run)
    run(job, as_json=output is Output.JSON)
