"""`riacho schema level` and `mode`: what holds for a subject, and setting it."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from riacho.cli.output import Output, OutputOption, Url, bad_usage, print_json
from riacho.cli.schemas.options import LevelName, registry_at
from riacho.http.gateway import DEFAULT_URL

Name = TypeVar("Name", bound=StrEnum)

Where = Annotated[
    str, typer.Argument(metavar="[SUBJECT]", help="None: all subjects that have none set.")
]
Unset = Annotated[bool, typer.Option("--unset", help="Return to the default.")]


class ModeName(StrEnum):
    """Modes, as options name them."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"


def level(
    subject: Where = "",
    wanted: Annotated[
        LevelName | None, typer.Argument(metavar="[LEVEL]", case_sensitive=False)
    ] = None,
    everywhere: Annotated[
        LevelName | None,
        typer.Option("--default", help="Set it for all that have none.", case_sensitive=False),
    ] = None,
    unset: Unset = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or set which changes of schemas a subject allows.

    \b
    riacho schema level                           # of subjects that have none
    riacho schema level orders-value FULL
    riacho schema level orders-value --unset
    riacho schema level --default FULL

    BACKWARD: new schemas read old data; FORWARD: old schemas read new data; FULL: both; NONE.
    They are compared with the latest version, and with all by _TRANSITIVE behind.
    """
    wanted = _wanted(subject, wanted, everywhere, unset)
    with registry_at(url) as registry:
        if wanted is not None or unset:
            registry.set_level(wanted, subject)
        found = registry.level(subject)
    _print("level", found, output)


def mode(
    subject: Where = "",
    wanted: Annotated[
        ModeName | None, typer.Argument(metavar="[MODE]", case_sensitive=False)
    ] = None,
    everywhere: Annotated[
        ModeName | None,
        typer.Option("--default", help="Set it for all that have none.", case_sensitive=False),
    ] = None,
    unset: Unset = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or set whether schemas may be registered: READWRITE, READONLY, or with ids by IMPORT.

    \b
    riacho schema mode orders-value
    riacho schema mode orders-value READONLY
    riacho schema mode --default IMPORT
    """
    wanted = _wanted(subject, wanted, everywhere, unset)
    with registry_at(url) as registry:
        if wanted is not None or unset:
            registry.set_mode(wanted, subject)
        found = registry.mode(subject)
    _print("mode", found, output)


def _wanted(subject: str, wanted: Name | None, everywhere: Name | None, unset: bool) -> Name | None:
    """Return what is to be set, if anything."""
    if everywhere is not None and (subject or unset):
        raise bad_usage("is for all subjects; name none", "--default")
    if unset and wanted is not None:
        raise bad_usage("say what to set, or --unset", "--unset")
    return everywhere or wanted


def _print(name: str, found: str, output: Output) -> None:
    if output is Output.JSON:
        print_json({name: found})
    else:
        typer.echo(found)
