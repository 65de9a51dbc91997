"""`riacho serve`: a gateway in this process."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from pathlib import Path
from typing import Annotated

import typer

from riacho.cli.output import bad_usage


def serve(
    host: Annotated[
        str, typer.Option(envvar="RIACHO_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="RIACHO_PORT", min=0, max=65535, help="Port; 0: a free one.")
    ] = 8080,
    data: Annotated[
        Path, typer.Option(envvar="RIACHO_DATA", help="Where everything is kept by default.")
    ] = Path("riacho-data"),
    zones: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_ZONES",
            help="a,b,c (directories under --data) or a=s3://bucket/prefix,b=file:///dir",
        ),
    ] = "",
    metadata: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_METADATA",
            help="sqlite:///file, dynamodb://table or memory://; default: SQLite under --data",
        ),
    ] = "",
    workers: Annotated[
        int, typer.Option(envvar="RIACHO_WORKERS", min=1, help="Processes that serve.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when the code changes.")
    ] = False,
    maintain_every: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_MAINTAIN_EVERY",
            help="Run retention, compaction and sweep this often: 30s, 5m, 1h; default: never.",
        ),
    ] = "",
    log_level: Annotated[
        str, typer.Option(envvar="RIACHO_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Run a gateway, by default with everything in ./riacho-data.

    \b
    riacho serve
    riacho serve --port 9000 --data /var/lib/riacho --zones a,b,c --maintain-every 5m
    riacho serve --host 0.0.0.0 --zones a=s3://bucket-a,b=s3://bucket-b \\
                 --metadata dynamodb://riacho --workers 4
    """
    from service.serve import run
    from service.world import durations

    try:
        if maintain_every and not durations.seconds(maintain_every):
            raise ValueError("must be longer than nothing; leave it out for never")
    except ValueError as error:
        raise bad_usage(str(error), "--maintain-every") from None
    run(
        host=host,
        port=port,
        data=data,
        zones=zones,
        metadata=metadata,
        workers=workers,
        reload=reload,
        log_level=log_level,
        maintain_every=maintain_every,
    )
