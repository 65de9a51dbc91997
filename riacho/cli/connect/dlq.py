"""`riacho dlq …`: list, show and re-drive the dead letters of connectors."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    bad_usage,
    note,
    pairs,
    print_json,
    print_table,
)
from riacho.cli.records.formats import parse_time_ms
from riacho.http.gateway import DEFAULT_URL

if TYPE_CHECKING:
    from riacho.admin.dead_letters import DeadLetters

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, show and send again the dead letters of connectors.",
)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the dead letters.")]
Filter = Annotated[
    list[str],
    typer.Option(
        "--filter",
        "-f",
        metavar="NAME=VALUE",
        help="Letters with this exception, origin, connector, stage, contains, from or to.",
    ),
]
NONE: list[str] = []

_TIMES = {"from": "from_ms", "to": "to_ms"}
_TEXTS = ("exception", "origin", "connector", "stage", "contains")


@commands.command("list")
def list_letters(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="Count what is in this one.")
    ] = None,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the topics of dead letters, or why letters of one are there.

    \b
    riacho dlq list
    riacho dlq list orders-dead
    """
    with _letters_at(url) as letters:
        found: Any = letters.list_topics() if topic is None else letters.summary(topic)
    if output is Output.JSON:
        print_json(found)
    elif topic is None:
        rows = [(each["topic"], each["letters"], each["connectors"]) for each in found]
        print_table(("topic", "letters", "connectors"), rows)
    else:
        names = ("exception", "origin", "connector", "stage", "count", "sent")
        print_table(names, [[each[name] or "-" for name in names] for each in found["groups"]])
        if found["looked_at"] < found["letters"]:
            note(f"of {found['letters']} letters, the first {found['looked_at']} were looked at")


@commands.command()
def show(
    topic: Topic,
    filters: Filter = NONE,
    count: Annotated[int, typer.Option("--max", "-n", min=1, help="Letters to show.")] = 10,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show dead letters, the oldest first.

    \b
    riacho dlq show orders-dead -n 3
    riacho dlq show orders-dead -f exception=DataException -f from=2026-11-19 -o json
    """
    with _letters_at(url) as letters:
        found = letters.show(topic, **_filter(filters), max=count)["letters"]
    if output is Output.JSON:
        print_json(found)
        return
    for each in found:
        context = each.get("context", {})
        place = f"{topic}-{each['partition']} at {each['offset']}"
        origin = f"{context.get('topic')}-{context.get('partition')} at {context.get('offset')}"
        was = f", was {origin}" if context.get("topic") else ""
        typer.echo(f"{place}{was}{', sent again' if each.get('sent') else ''}")
        typer.echo(f"  key    {each.get('key', each.get('key_base64'))}")
        typer.echo(f"  value  {each.get('value', each.get('value_base64'))}")
        if context.get("exception.class.name"):
            text = f"{context['exception.class.name']}: {context.get('exception.message', '')}"
            typer.echo(f"  {context.get('stage', '')}: {text}")


@commands.command()
def redrive(
    topic: Topic,
    to: Annotated[
        str, typer.Option("--to", help="origin, topic:NAME, or sink:CONNECTOR.")
    ] = "origin",
    filters: Filter = NONE,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="Letters per second, at most.")
    ] = None,
    count: Annotated[int | None, typer.Option("--max", min=1, help="Letters, at most.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = (
        False
    ),
    transform: Annotated[
        list[str],
        typer.Option(
            "--transform",
            metavar="KEY=VALUE",
            help="Mend them by transforms: transforms=…, transforms.x.type=…, value.converter=….",
        ),
    ] = NONE,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Send dead letters again: each once to the same destination, however often this is run.

    Exit code 1: some could not be sent. They stay, and are named.

    \b
    riacho dlq redrive orders-dead --dry-run
    riacho dlq redrive orders-dead -f exception=DataException --rate 100
    riacho dlq redrive orders-dead --to sink:warehouse
    """
    totals: Counter[str] = Counter()
    refused: list[dict[str, Any]] = []
    with _letters_at(url) as letters, _progress() as progress:
        answers = letters.redrive(
            topic,
            to,
            filter=_filter(filters),
            rate=rate,
            count_max=count,
            dry_run=dry_run,
            transform=dict(pairs(transform, "--transform")),
        )
        for found in answers:
            totals.update({name: n for name, n in found.items() if type(n) is int})
            refused += found["refused"]
            progress(f"{totals['sent']} sent, {totals['looked_at']} looked at")
    _report(totals, refused, dry_run=dry_run, output=output)
    if totals["refused_count"]:
        raise typer.Exit(1)


def _report(
    totals: "Counter[str]", refused: Sequence[dict[str, Any]], *, dry_run: bool, output: Output
) -> None:
    names = ("looked_at", "matched", "sent", "sent_before", "dropped", "refused_count")
    if output is Output.JSON:
        print_json({**{name: totals[name] for name in names}, "refused": list(refused)})
        return
    for each in refused:
        note(f"partition {each['partition']} at {each['offset']}: {each['reason']}")
    typer.echo(f"{totals['sent']} {'would be sent' if dry_run else 'sent'}", nl=False)
    typer.echo(
        f", {totals['sent_before']} sent before, {totals['dropped']} dropped,"
        f" {totals['refused_count']} cannot be sent; {totals['looked_at']} looked at"
    )


def _filter(texts: Sequence[str]) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for name, text in pairs(texts, "--filter"):
        if name in _TIMES:
            try:
                wanted[_TIMES[name]] = parse_time_ms(text)
            except ValueError as error:
                raise bad_usage(str(error), "--filter") from None
        elif name in _TEXTS:
            wanted[name] = text
        else:
            raise bad_usage(f"{name!r} is none of {', '.join((*_TEXTS, *_TIMES))}", "--filter")
    return wanted


def _letters_at(url: str) -> "DeadLetters":
    from riacho.admin.dead_letters import DeadLetters

    return DeadLetters(url)


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """Show how far it is, only on a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("looking at letters") as status:
        yield status.update
