"""Options shared by the commands that run jobs: where the stores are, and how to run."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from service.jobs.work import JobOutcome

DEFAULT_DATA = Path("riacho-data")

Topics = Annotated[list[str], typer.Argument(help="Names of topics; none: all.")]
Data = Annotated[Path, typer.Option(envvar="RIACHO_DATA", help="As for `riacho serve`.")]
Zones = Annotated[str, typer.Option(envvar="RIACHO_ZONES", help="As for `riacho serve`.")]
Metadata = Annotated[str, typer.Option(envvar="RIACHO_METADATA", help="As for `riacho serve`.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
]
Spark = Annotated[
    bool | None,
    typer.Option(
        "--spark/--no-spark", help="With Spark or without; default: if there is much to do."
    ),
]
Master = Annotated[str, typer.Option(help="Spark master; default: local[*].")]
Concurrency = Annotated[
    int | None, typer.Option(min=1, help="Tasks at once; default: one per core, up to 4.")
]
Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait until another job has ended.")]


def run(job: "Callable[[], Coroutine[Any, Any, JobOutcome]]", *, as_json: bool) -> None:
    """Do the job, print what it has to say, and end the command with its exit code."""
    from service.jobs import commands

    code = commands.run(job, as_json=as_json)
    if code:
        raise typer.Exit(code)
