"""`riacho topic …`: create, list, describe, alter, delete, delete-records."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    bad_usage,
    note,
    pairs,
    print_fields,
    print_json,
    print_table,
)
from riacho.http.gateway import DEFAULT_URL
from storage.errors import TopicExists

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, list, describe, alter, delete."
)

Name = Annotated[str, typer.Argument(help="Name of the topic.")]
ConfigOption = Annotated[
    list[str],
    typer.Option("--config", "-c", help="A setting as key=value, by Kafka's names; repeatable."),
]


@commands.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", min=1)] = 1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", min=1, help="Zones that hold a copy.")
    ] = 1,
    config: ConfigOption = [],  # noqa: B006
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic.

    \b
    riacho topic create orders
    riacho topic create orders -p 3 -r 3 -c min.insync.replicas=2 -c retention.ms=3600000
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        try:
            topic = admin.create_topic(
                name, partitions, replication_factor, dict(pairs(config, "--config"))
            )
        except TopicExists:
            if not if_not_exists:
                raise
            topic = admin.describe_topic(name)
    if output is Output.JSON:
        print_json(asdict(topic))
    else:
        note(f"topic {topic.name} has {topic.partitions} partitions")


@commands.command("list")
def list_topics(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """List all topics.

    \b
    riacho topic list
    riacho topic list -o json | jq -r '.[].name'
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        topics = admin.list_topics()
    if output is Output.JSON:
        print_json([asdict(topic) for topic in topics])
        return
    rows = [
        (t.name, t.partitions, t.replication_factor, t.config.get("cleanup.policy")) for t in topics
    ]
    print_table(("name", "partitions", "replicas", "cleanup"), rows)


@commands.command()
def describe(name: Name, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show a topic, its settings and its partitions.

    \b
    riacho topic describe orders
    riacho topic describe orders -o json | jq '.partition_details[].high_watermark'
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        topic = admin.describe_topic(name)
        infos = admin.partitions(name)
    if output is Output.JSON:
        print_json({**asdict(topic), "partition_details": [asdict(info) for info in infos]})
        return
    print_fields(
        {
            "name": topic.name,
            "id": topic.id,
            "partitions": topic.partitions,
            "replicas": topic.replication_factor,
        }
    )
    typer.echo()
    print_fields(dict(sorted(topic.config.items())))
    typer.echo()
    print_table(
        ("partition", "start", "end", "bytes", "leader", "epoch", "replicas", "isr"),
        [
            (
                info.partition,
                info.log_start_offset,
                info.high_watermark,
                info.size_bytes,
                info.leader,
                info.leader_epoch,
                info.replicas,
                info.isr,
            )
            for info in infos
        ],
    )


@commands.command()
def alter(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="More than there are.")
    ] = None,
    config: ConfigOption = [],  # noqa: B006
    unset: Annotated[
        list[str], typer.Option("--unset", help="Return a setting to its default; repeatable.")
    ] = [],  # noqa: B006
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", min=1, help="Zones that hold a copy."),
    ] = None,
    replicas: Annotated[
        str, typer.Option("--replicas", help="Names of these zones, as in a,b,c.")
    ] = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add partitions, change settings, move replicas to other zones.

    \b
    riacho topic alter orders -p 6
    riacho topic alter orders -c retention.ms=60000 --unset segment.bytes
    riacho topic alter orders --replicas a,b,d
    """
    from riacho.admin.admin import Admin

    zones = [zone.strip() for zone in replicas.split(",")] if replicas else None
    if not (partitions or config or unset or replication_factor or zones):
        raise typer.BadParameter(
            "nothing to change; give --partitions, --config, --unset, --replication-factor or"
            " --replicas"
        )
    changes: dict[str, str | int | float | None] = dict(pairs(config, "--config"))
    with Admin(url) as admin:
        topic = admin.alter_topic(
            name, partitions, changes | dict.fromkeys(unset), replication_factor, zones
        )
    if output is Output.JSON:
        print_json(asdict(topic))
    else:
        note(f"topic {topic.name} was changed")


@commands.command()
def delete(
    names: Annotated[list[str], typer.Argument(help="Names of the topics.")],
    shred: Annotated[
        bool,
        typer.Option("--shred", help="Destroy the keys of encrypted topics, too."),
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete topics and every record in them. There is no way back.

    \b
    riacho topic delete orders
    riacho topic delete patients --shred
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        for name in names:
            admin.delete_topic(name, shred=shred)
            note(f"topic {name} was deleted{', and its keys' if shred else ''}")


@commands.command("delete-records")
def delete_records(
    name: Name,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Of these; repeatable. None: of all."),
    ] = None,
    before: Annotated[
        str, typer.Option("--before", help="The first offset to keep, or latest to keep none.")
    ] = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the records before an offset. There is no way back.

    \b
    riacho topic delete-records orders -p 0 --before 100
    riacho topic delete-records orders --before latest
    """
    from riacho.admin.admin import Admin

    first = _first_to_keep(before)
    with Admin(url) as admin:
        wanted = partitions or range(admin.describe_topic(name).partitions)
        starts = admin.delete_records(name, dict.fromkeys(wanted, first))
    if output is Output.JSON:
        print_json([{"partition": p, "log_start_offset": n} for p, n in starts.items()])
    else:
        print_table(("partition", "start"), list(starts.items()))


def _first_to_keep(text: str) -> int | Literal["latest"]:
    if text == "latest":
        return "latest"
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise bad_usage("give the first offset to keep, or latest", "--before")
    return int(text)
