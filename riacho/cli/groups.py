"""`riacho group …`: list, describe, lag, offsets, reset, delete."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer

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
from riacho.cli.records.formats import parse_time_ms
from riacho.http.gateway import DEFAULT_URL

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, describe, lag, offsets, reset, delete consumer groups.",
)

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


class Target(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    SHIFT = "shift"


@commands.command("list")
def list_groups(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """List all groups.

    \b
    riacho group list
    riacho group list -o json | jq -r '.[] | select(.state == "Empty").group'
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        groups = admin.list_groups()
    if output is Output.JSON:
        print_json([asdict(group) for group in groups])
        return
    rows = [
        (g.group, g.kind, g.state, g.member_count, g.protocols, g.generation, g.assignor)
        for g in groups
    ]
    print_table(("group", "kind", "state", "members", "protocols", "generation", "assignor"), rows)


@commands.command()
def describe(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show a group, its members and what each of them reads.

    \b
    riacho group describe billing
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        group = admin.describe_group(name)
    if output is Output.JSON:
        print_json(asdict(group))
        return
    print_fields(
        {
            "group": group.group,
            "kind": group.kind,
            "protocols": group.protocols,
            "of": group.protocol_type,
            "state": group.state,
            "generation": group.generation,
            "assignor": group.assignor,
        }
    )
    typer.echo()
    rows = [
        (
            member.member_id,
            member.instance_id,
            member.protocol,
            member.topics_pattern or member.topics,
            member.session_timeout_ms,
            member.assignment,
            member.revoke,
        )
        for member in group.members
    ]
    print_table(
        ("member", "instance", "speaks", "topics", "session ms", "reads", "to give up"), rows
    )


@commands.command()
def lag(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show how far behind a group is, in records and seconds.

    \b
    riacho group lag billing
    riacho group lag billing -o json | jq '[.[].lag] | add'
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        lags = admin.group_lag(name)
    if output is Output.JSON:
        print_json([asdict(one) for one in lags])
        return
    rows = [
        (
            one.topic,
            one.partition,
            "-" if one.committed_offset < 0 else one.committed_offset,
            one.high_watermark,
            one.lag,
            f"{one.lag_seconds:.1f}",
            one.member_id,
        )
        for one in lags
    ]
    print_table(("topic", "partition", "committed", "end", "lag", "seconds", "member"), rows)
    note(f"{sum(one.lag for one in lags)} records behind")


@commands.command()
def offsets(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show what a group has committed.

    \b
    riacho group offsets billing
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.group_offsets(name)
    if output is Output.JSON:
        print_json([asdict(one) for one in found])
        return
    rows = [(o.topic, o.partition, o.offset, o.committed_ms, o.metadata) for o in found]
    print_table(("topic", "partition", "offset", "committed ms", "metadata"), rows)


@commands.command(context_settings={"ignore_unknown_options": True})
def reset(
    name: Name,
    to: Annotated[Target, typer.Option("--to", help="Where to put the group.")],
    value: Annotated[
        str | None,
        typer.Argument(
            help="For offset: N; for timestamp: ms since 1970 or ISO 8601; for shift: N or -N."
        ),
    ] = None,
    topic: Annotated[
        list[str], typer.Option("--topic", "-t", help="Only this topic; repeatable.")
    ] = [],  # noqa: B006
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would happen.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move what a group has committed. It must have no members.

    \b
    riacho group reset billing --to earliest --dry-run
    riacho group reset billing --to latest --topic orders
    riacho group reset billing --to offset 42
    riacho group reset billing --to timestamp 2026-11-16T09:00Z
    riacho group reset billing --to shift -100

    Without --topic it is everything that the group has committed; a topic that it never
    committed has to be named. Beyond either end of a log, the end is taken.
    """
    from riacho.admin.admin import Admin

    number = _number(to, value)
    with Admin(url) as admin:
        moved = admin.reset_group(name, to.value, number, topics=topic, dry_run=dry_run)
    if output is Output.JSON:
        print_json([asdict(one) for one in moved])
        return
    rows = [(m.topic, m.partition, "-" if m.before is None else m.before, m.after) for m in moved]
    print_table(("topic", "partition", "before", "after"), rows)
    if dry_run:
        note("nothing was changed, because of --dry-run")


@commands.command()
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of the groups.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Delete groups, with all they have committed. They must have no members.

    \b
    riacho group delete billing
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        for name in names:
            admin.delete_group(name)
            note(f"group {name} was deleted")


def _number(to: Target, value: str | None) -> int | None:
    if to in (Target.EARLIEST, Target.LATEST):
        if value is not None:
            raise bad_usage(f"{to} takes no number, so {value!r} has no meaning", "VALUE")
        return None
    if value is None:
        raise bad_usage(f"say which {to}: riacho group reset GROUP --to {to} VALUE", "VALUE")
    try:
        return parse_time_ms(value) if to is Target.TIMESTAMP else int(value)
    except ValueError as error:
        raise bad_usage(str(error), "VALUE") from None
