"""`riacho doctor`: check that the stores keep the promises that the log is built on."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from riacho.cli.output import Output, OutputOption, bad_usage, note, print_json, print_table

if TYPE_CHECKING:
    from service.settings import Settings
    from storage.stores.doctor import Diagnosis


def doctor(
    data: Annotated[Path, typer.Option(envvar="RIACHO_DATA", help="As for `riacho serve`.")] = Path(
        "riacho-data"
    ),
    zones: Annotated[str, typer.Option(envvar="RIACHO_ZONES", help="As for `riacho serve`.")] = "",
    metadata: Annotated[
        str, typer.Option(envvar="RIACHO_METADATA", help="As for `riacho serve`.")
    ] = "",
    create: Annotated[
        bool, typer.Option("--create", help="Create the DynamoDB table if it is missing.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check the stores that a gateway would use: conditional writes, above all.

    Some stores accept a conditional write and ignore the condition. On such a store two
    gateways would overwrite each other's records, so check it before you use it.

    \b
    riacho doctor
    riacho doctor --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho --create
    """
    from service.settings import Settings

    if create and not metadata.startswith("dynamodb://"):
        raise bad_usage("only a dynamodb:// table is created; see --metadata", "--create")
    settings = Settings(data=data, zones=zones, metadata=metadata)
    findings = asyncio.run(_examine(settings, create))
    if output is Output.JSON:
        print_json([{"store": store, **asdict(finding)} for store, finding in findings])
    else:
        rows = [
            (store, f.name, "ok" if f.ok else "FAILED", round(f.took_ms), f.detail)
            for store, f in findings
        ]
        print_table(("store", "check", "result", "ms", "detail"), rows)
    failed = sum(not finding.ok for _, finding in findings)
    if failed:
        note(f"riacho: {failed} of {len(findings)} checks failed; do not serve from these stores")
        raise typer.Exit(1)


async def _examine(settings: "Settings", create: bool) -> "list[tuple[str, Diagnosis]]":
    from service.process.stores import open_table, open_zones
    from service.world.clock import real_world
    from storage.stores.doctor import check_metadata, check_objects

    zones = open_zones(settings)
    try:
        table = open_table(settings, real_world())
        try:
            if create:
                await _create(table)
            findings = [("metadata", f) for f in await check_metadata(table)]
        finally:
            await table.close()
        for name in zones.names:
            findings += [(f"zone {name}", f) for f in await check_objects(zones.store(name))]
        return findings
    finally:
        await zones.close()


async def _create(table: object) -> None:
    from storage.stores.dynamodb.table import DynamoMetadata

    assert isinstance(table, DynamoMetadata), table
    note("the table was created" if await table.create_table() else "the table exists already")
