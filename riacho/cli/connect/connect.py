"""`riacho connect …`: list, show, create, apply, validate, delete; their states and offsets."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from riacho.cli.connect import running, states
from riacho.cli.connect.files import read_config
from riacho.cli.connect.options import Changes, File, Name, NameOption, connectors_at
from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    bad_usage,
    note,
    print_fields,
    print_json,
    print_table,
)
from riacho.http.gateway import DEFAULT_URL

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, show, change, pause, restart and delete connectors.",
)
states.add_to(commands)
running.add_to(commands)


class InitialState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@commands.command("list")
def list_connectors(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """List connectors and what they do.

    \b
    riacho connect list
    riacho connect list -o json | jq keys
    """
    with connectors_at(url) as connectors:
        found = connectors.list_all()
    if output is Output.JSON:
        print_json(found)
        return
    rows = [_row(name, each) for name, each in sorted(found.items())]
    print_table(("name", "type", "class", "state", "tasks", "failed"), rows)


def _row(name: str, found: dict[str, Any]) -> tuple[object, ...]:
    status, config = found["status"], found["info"]["config"]
    tasks = [task["state"] for task in status["tasks"]]
    class_name = config.get("connector.class", "").rpartition(".")[2]
    state = status["connector"]["state"]
    return name, status["type"], class_name, state, len(tasks), tasks.count("FAILED")


@commands.command()
def show(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the configuration of a connector. Secrets are references, and stay so.

    \b
    riacho connect show orders
    riacho connect show orders -o json | jq .config > orders.json
    """
    with connectors_at(url) as connectors:
        found = connectors.describe(name)
    if output is Output.JSON:
        print_json(found)
        return
    print_fields({"name": found["name"], "type": found["type"], "tasks": len(found["tasks"])})
    typer.echo()
    print_fields(dict(sorted(found["config"].items())))


@commands.command()
def create(
    file: File = None,
    changes: Changes = [],  # noqa: B006
    name: NameOption = "",
    state: Annotated[
        InitialState, typer.Option("--state", help="What it does at first.")
    ] = InitialState.RUNNING,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a connector; it is an error if there is one of its name.

    \b
    riacho connect create orders.json
    riacho connect create connector.properties --state stopped
    riacho connect create -c name=orders -c connector.class=Datagen \\
        -c kafka.topic=orders -c quickstart=orders
    """
    config = read_config(file, changes)
    name = _name(name, config)
    with connectors_at(url) as connectors:
        made = connectors.create(name, config, initial_state=state.value.upper())
    if output is Output.JSON:
        print_json(made)
    else:
        note(f"created connector {name}")


@commands.command()
def apply(
    file: File = None,
    changes: Changes = [],  # noqa: B006
    name: NameOption = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a connector, or give it this configuration instead of its own.

    \b
    riacho connect apply orders.json
    riacho connect apply orders.json -c tasks.max=4
    """
    config = read_config(file, changes)
    name = _name(name, config)
    with connectors_at(url) as connectors:
        made = connectors.apply(name, config)
    if output is Output.JSON:
        print_json(made)
    else:
        note(f"connector {name} has this configuration")


def _name(name: str, config: dict[str, str]) -> str:
    found = name or config.get("name", "")
    if not found:
        raise bad_usage("the configuration has no name; give --name", "--name")
    return found


@commands.command()
def validate(
    file: File = None,
    changes: Changes = [],  # noqa: B006
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what is wrong with a configuration, without creating anything.

    Exit code 1: something is.

    \b
    riacho connect validate orders.json
    riacho connect validate orders.json -o json | jq '.configs[].value | select(.errors != [])'
    """
    config = read_config(file, changes)
    if "connector.class" not in config:
        raise bad_usage("the configuration has no connector.class", "FILE")
    config.setdefault("name", "validated")
    with connectors_at(url) as connectors:
        found = connectors.validate(config)
    if output is Output.JSON:
        print_json(found)
    else:
        values = [each["value"] for each in found["configs"]]
        rows = [(value["name"], error) for value in values for error in value["errors"]]
        if rows:
            print_table(("key", "problem"), rows)
        else:
            note("nothing is wrong with it")
    if found["error_count"]:
        raise typer.Exit(1)


@commands.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a connector, its tasks, and how far it has read. Records stay.

    \b
    riacho connect delete orders --yes
    """
    if not yes:
        if not sys.stdin.isatty():
            raise bad_usage("nobody is there to be asked; give --yes", "--yes")
        typer.confirm(f"Delete connector {name}?", abort=True, err=True)
    with connectors_at(url) as connectors:
        connectors.delete(name)
    note(f"deleted connector {name}")


@commands.command()
def plugins(
    plugin: Annotated[
        str, typer.Argument(metavar="[CLASS]", help="Show the keys of this one.")
    ] = "",
    every: Annotated[
        bool, typer.Option("--all", help="Converters, transforms and predicates, too.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the classes that configurations may name, or the keys of one.

    \b
    riacho connect plugins
    riacho connect plugins Datagen
    """
    with connectors_at(url) as connectors:
        found: list[dict[str, Any]]
        if plugin:
            found = connectors.keys_of(plugin)
        else:
            found = list(connectors.plugins(connectors_only=not every))
    if output is Output.JSON:
        print_json(found)
        return
    if not plugin:
        print_table(("class", "type"), [(each["class"], each["type"]) for each in found])
        return
    fields = ("name", "type", "default_value", "importance", "documentation")
    titles = ("key", "type", "default", "importance", "about")
    rows = [
        ["required" if each["required"] and f == "default_value" else each[f] for f in fields]
        for each in found
    ]
    print_table(titles, rows)
