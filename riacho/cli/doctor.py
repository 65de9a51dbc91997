"""`riacho doctor`: check that the stores keep the promises that the log is built on."""

from pathlib import Path
from typing import Annotated

import typer

from riacho.cli.output import Output, OutputOption


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
    """Check the stores that a gateway would use: conditional writes, above all."""
    raise NotImplementedError
