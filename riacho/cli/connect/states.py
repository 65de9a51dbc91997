"""`riacho connect …`: status, pause, resume, stop, restart, offsets."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import json
from typing import Annotated, Any

import typer

from riacho.cli.connect.options import Name, connectors_at
from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    bad_usage,
    note,
    print_json,
    print_table,
)
from riacho.http.gateway import DEFAULT_URL


def status(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show what a connector and its tasks do, and why something has failed.

    Exit code 1: something has.

    \b
    riacho connect status orders
    riacho connect status orders -o json | jq -r '.tasks[].trace // empty'
    """
    with connectors_at(url) as connectors:
        found = connectors.status(name)
    parts = [("connector", found["connector"]), *((t["id"], t) for t in found["tasks"])]
    if output is Output.JSON:
        print_json(found)
    else:
        rows = [_row(part, each) for part, each in parts]
        print_table(("task", "state", "worker", "records", "errors", "restarts"), rows)
        for part, each in parts:
            if each.get("trace"):
                note(f"\n{part}: {each['trace']}")
    if any(each["state"] == "FAILED" for _, each in parts):
        raise typer.Exit(1)


def _row(part: object, found: dict[str, Any]) -> tuple[object, ...]:
    more = found.get("riacho", {})
    counts = (more.get(each) for each in ("records", "errors", "restarts"))
    return str(part), found["state"], found["worker_id"] or None, *counts


def pause(name: Name, url: Url = DEFAULT_URL) -> None:
    """Pause a connector: its tasks do nothing until it is resumed.

    \b
    riacho connect pause orders
    """
    with connectors_at(url) as connectors:
        connectors.pause(name)
    note(f"connector {name} is paused")


def resume(name: Name, url: Url = DEFAULT_URL) -> None:
    """Resume a connector that was paused or stopped.

    \b
    riacho connect resume orders
    """
    with connectors_at(url) as connectors:
        connectors.resume(name)
    note(f"connector {name} goes on")


def stop(name: Name, url: Url = DEFAULT_URL) -> None:
    """Stop a connector: then its offsets can be changed.

    \b
    riacho connect stop orders
    """
    with connectors_at(url) as connectors:
        connectors.stop(name)
    note(f"connector {name} is stopped")


def restart(
    name: Name,
    failed: Annotated[bool, typer.Option("--failed", help="Only what has failed.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Restart a connector and its tasks.

    \b
    riacho connect restart orders
    riacho connect restart orders --failed
    """
    with connectors_at(url) as connectors:
        connectors.restart(name, only_failed=failed)
    note(f"connector {name} is restarted")


def offsets(
    name: Name,
    changes: Annotated[
        str | None,
        typer.Option("--set", metavar="JSON", help="Set these, as `-o json` prints them."),
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget all: begin anew.")] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far a connector has read or, when it is stopped, change that.

    \b
    riacho connect offsets orders
    riacho connect offsets orders --reset
    riacho connect offsets orders \\
      --set '[{"partition": {"filename": "a.txt"}, "offset": null}]'
    """
    if reset and changes is not None:
        raise bad_usage("give --set or --reset", "--reset")
    with connectors_at(url) as connectors:
        if reset:
            connectors.reset_offsets(name)
        elif changes is not None:
            connectors.set_offsets(name, _parsed(changes))
        found = connectors.offsets(name)
    if output is Output.JSON:
        print_json(found)
        return
    rows = [(json.dumps(each["partition"]), json.dumps(each["offset"])) for each in found]
    print_table(("partition", "offset"), rows)


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_usage(f"this is not JSON: {error}", "--set") from None
    if isinstance(found, dict):
        found = found.get("offsets", [found])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise bad_usage("this is no list of partitions and offsets", "--set")
    return found


def add_to(commands: typer.Typer) -> None:
    """Add the commands of this module."""
    for each in (status, pause, resume, stop, restart, offsets):
        commands.command()(each)
