"""`riacho connect run`: run connectors here, on the stores of a deployment."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from pathlib import Path
from typing import Annotated, Any

import typer

from riacho.cli.output import bad_usage, note
from storage.errors import RiachoError


def run(
    data: Annotated[Path, typer.Option(envvar="RIACHO_DATA", help="As for `riacho serve`.")] = Path(
        "riacho-data"
    ),
    zones: Annotated[str, typer.Option(envvar="RIACHO_ZONES", help="As for `riacho serve`.")] = "",
    metadata: Annotated[
        str, typer.Option(envvar="RIACHO_METADATA", help="As for `riacho serve`.")
    ] = "",
    duration: Annotated[
        str, typer.Option("--for", help="End after this long, like 50s; default: never.")
    ] = "",
    log_level: Annotated[
        str, typer.Option(envvar="RIACHO_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
    security: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_SECURITY",
            help="off: every connector may do everything. Default: only those that were created"
            " without security may; the others what ACLs allow their principals.",
        ),
    ] = "",
) -> None:
    """Run connectors in this process, beside those that run them already.

    \b
    riacho connect run
    riacho connect run --zones a=s3://bucket-a --metadata dynamodb://riacho
    riacho connect run --for 50s

    `riacho serve` runs connectors, too, unless RIACHO_CONNECT=off. Tasks go to whoever is there:
    any number of such processes may be started and stopped at any time.
    """
    from service.connect.running.process import run as run_process
    from service.process.stores import is_in_memory
    from service.settings import Settings
    from service.world import durations

    try:
        for_s = durations.seconds(duration) if duration else None
    except ValueError as error:
        raise bad_usage(str(error), "--for") from None
    given: dict[str, Any] = {"zones": zones, "metadata": metadata, "security": security}
    chosen = {name: text for name, text in given.items() if text}
    settings = Settings(data=data, log_level=log_level, **chosen)
    if is_in_memory(settings):
        raise bad_usage("another process cannot see stores that are in memory", "--metadata")
    try:
        run_process(settings, for_s=for_s)
    except RiachoError as error:
        note(f"riacho connect run: {error} ({error.code})")
        raise typer.Exit(1) from None


def add_to(commands: typer.Typer) -> None:
    """Add the command."""
    commands.command()(run)
