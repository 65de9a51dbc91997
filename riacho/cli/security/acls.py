"""`riacho acls …`: create, list, delete, check."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Annotated

import typer

from riacho.cli.output import Output, OutputOption, Url, bad_usage, note, print_json, print_table
from riacho.cli.security.options import (
    AclOperation,
    Cluster,
    Connectors,
    Groups,
    OneOperation,
    Operations,
    Prefix,
    Resource,
    Subjects,
    Topics,
    TransactionalIds,
    principal_of,
    resources,
)
from riacho.http.gateway import DEFAULT_URL

if TYPE_CHECKING:
    from riacho.admin.security import AclEntry

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Create, list, delete, check ACLs."
)

PRODUCER = {
    "TOPIC": ("WRITE", "DESCRIBE", "CREATE"),
    "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE"),
}
CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}
"""By type of resource: what kafka-acls.sh --producer and --consumer allow."""

Principal = Annotated[str, typer.Option("--principal", help="Like User:ana; User:* is everyone.")]
Permission = Annotated[
    bool | None, typer.Option("--allow/--deny", help="Only those that allow, or that deny.")
]


@commands.command()
def create(
    principals: Annotated[
        list[str],
        typer.Option("--principal", help="Like User:ana; User:* is everyone. May be repeated."),
    ],
    allow: Annotated[
        bool, typer.Option("--allow/--deny", help="Any DENY wins over every ALLOW.")
    ] = True,
    topics: Topics = [],  # noqa: B006
    groups: Groups = [],  # noqa: B006
    transactional_ids: TransactionalIds = [],  # noqa: B006
    subjects: Subjects = [],  # noqa: B006
    connectors: Connectors = [],  # noqa: B006
    cluster: Cluster = False,
    prefix: Prefix = False,
    operations: Operations = [],  # noqa: B006
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer to --topic needs.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")
    ] = False,
    hosts: Annotated[
        list[str], typer.Option("--host", help="Address of the caller. May be repeated.")
    ] = ["*"],  # noqa: B006
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Allow or deny principals something; what is there already stays as it is.

    \b
    riacho acls create --allow --principal User:ana --operation READ --topic orders
    riacho acls create --principal User:ana --operation ALL --topic acme. --prefix
    riacho acls create --deny --principal User:bia --operation WRITE --topic '*'
    riacho acls create --principal User:web --producer --topic orders
    riacho acls create --principal User:till --consumer --topic orders --group 'till-*'
    """
    from riacho.admin.admin import Admin
    from riacho.admin.security import AclEntry

    found = resources(
        topics,
        groups,
        transactional_ids,
        subjects,
        connectors,
        cluster=cluster,
        is_prefix=prefix,
    )
    rights = [*_rights(found, operations, producer=producer, consumer=consumer)]
    if (producer or consumer) and not allow:
        raise bad_usage("are for --allow", "--producer, --consumer")
    acls = [
        AclEntry(
            resource_type=resource.kind,
            resource_name=resource.name,
            pattern_type=resource.pattern_type,
            principal=principal_of(principal),
            operation=operation,
            permission="ALLOW" if allow else "DENY",
            host=host,
        )
        for principal, (resource, operation), host in product(principals, rights, hosts)
    ]
    with Admin(url) as admin:
        _print(admin.create_acls(acls), output)


def _rights(
    found: Sequence[Resource], operations: Sequence[str], *, producer: bool, consumer: bool
) -> Iterator[tuple[Resource, str]]:
    """Yield what is to be allowed or denied."""
    if not found:
        raise bad_usage("say on what: --topic, --group, --cluster …", "--topic")
    if not (operations or producer or consumer):
        raise bad_usage("say what: --operation READ, --producer, --consumer …", "--operation")
    if consumer and not any(each.kind == "GROUP" for each in found):
        raise bad_usage("a consumer needs --group, too; --group '*' is every group", "--consumer")
    for resource in found:
        wanted = [
            *operations,
            *(PRODUCER.get(resource.kind, ()) if producer else ()),
            *(CONSUMER.get(resource.kind, ()) if consumer else ()),
        ]
        for operation in dict.fromkeys(wanted):
            yield resource, operation


@commands.command("list")
def list_acls(
    principal: Principal = "",
    operation: OneOperation | None = None,
    topics: Topics = [],  # noqa: B006
    groups: Groups = [],  # noqa: B006
    transactional_ids: TransactionalIds = [],  # noqa: B006
    subjects: Subjects = [],  # noqa: B006
    connectors: Connectors = [],  # noqa: B006
    cluster: Cluster = False,
    prefix: Prefix = False,
    match: Annotated[
        bool, typer.Option("--match", help="All whose patterns match the name that is given.")
    ] = False,
    permission: Permission = None,
    host: Annotated[str, typer.Option(help="Address of the caller.")] = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List ACLs: all, or those that fit the options.

    \b
    riacho acls list
    riacho acls list --principal User:ana
    riacho acls list --topic acme.orders --match
    """
    from riacho.admin.admin import Admin

    found = resources(
        topics,
        groups,
        transactional_ids,
        subjects,
        connectors,
        cluster=cluster,
        is_prefix=prefix,
    )
    wanted = _filter(found, principal, operation, permission, host, match=match)
    with Admin(url) as admin:
        _print(admin.list_acls(**wanted), output)


@commands.command()
def delete(
    principal: Principal = "",
    operation: OneOperation | None = None,
    topics: Topics = [],  # noqa: B006
    groups: Groups = [],  # noqa: B006
    transactional_ids: TransactionalIds = [],  # noqa: B006
    subjects: Subjects = [],  # noqa: B006
    connectors: Connectors = [],  # noqa: B006
    cluster: Cluster = False,
    prefix: Prefix = False,
    permission: Permission = None,
    host: Annotated[str, typer.Option(help="Address of the caller.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="Delete every ACL.")] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete the ACLs that fit the options, and print them. `list` shows which those are.

    \b
    riacho acls delete --principal User:ana
    riacho acls delete --principal User:ana --operation WRITE --topic orders
    riacho acls delete --all
    """
    from riacho.admin.admin import Admin

    found = resources(
        topics,
        groups,
        transactional_ids,
        subjects,
        connectors,
        cluster=cluster,
        is_prefix=prefix,
    )
    wanted = _filter(found, principal, operation, permission, host, match=False)
    if bool(wanted) == everything:
        raise bad_usage("say which, or --all for all of them", "--principal, --topic …")
    with Admin(url) as admin:
        deleted = admin.delete_acls(**(wanted or {"resource_type": "ANY"}))
    _print(deleted, output)
    note(f"{len(deleted)} ACLs were deleted")


@commands.command()
def check(
    principal: Annotated[str, typer.Option("--principal", help="Like User:ana.")],
    operation: OneOperation,
    topics: Topics = [],  # noqa: B006
    groups: Groups = [],  # noqa: B006
    transactional_ids: TransactionalIds = [],  # noqa: B006
    subjects: Subjects = [],  # noqa: B006
    connectors: Connectors = [],  # noqa: B006
    cluster: Cluster = False,
    host: Annotated[str, typer.Option(help="Address of the caller.")] = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a principal may do something, and why. Exit code 0: yes, 1: no.

    \b
    riacho acls check --principal User:ana --operation WRITE --topic orders
    riacho acls check --principal User:ana --operation DESCRIBE --cluster -o json

    It is about the principal: the scope of a key may allow less.
    """
    from riacho.admin.admin import Admin

    found = resources(topics, groups, transactional_ids, subjects, connectors, cluster=cluster)
    if len(found) != 1:
        raise bad_usage("name one resource: --topic orders, for example", "--topic")
    [resource] = found
    with Admin(url) as admin:
        answer = admin.check_acl(
            principal_of(principal), operation, resource.kind, resource.name, host or None
        )
    if output is Output.JSON:
        print_json(asdict(answer))
    else:
        typer.echo(f"{'yes' if answer.allowed else 'no'}: {answer.why}")
        if answer.acl is not None:
            typer.echo()
            _print([answer.acl], output)
    if not answer.allowed:
        raise typer.Exit(1)


def _filter(
    found: Sequence[Resource],
    principal: str,
    operation: AclOperation | None,
    allow: bool | None,
    host: str,
    *,
    match: bool,
) -> dict[str, str]:
    """Return the filter that options describe, in Kafka's words."""
    if len(found) > 1:
        raise bad_usage("only one resource at a time", "--topic")
    given = {
        "principal": principal_of(principal) if principal else "",
        "operation": operation or "",
        "permission": "" if allow is None else "ALLOW" if allow else "DENY",
        "host": host,
    }
    for resource in found:
        given |= {
            "resource_type": resource.kind,
            "resource_name": resource.name,
            "pattern_type": "MATCH" if match else resource.pattern_type,
        }
    if match and not found:
        raise bad_usage("is for a name: --topic orders --match", "--match")
    return {name: value for name, value in given.items() if value}


def _print(acls: "Sequence[AclEntry]", output: Output) -> None:
    if output is Output.JSON:
        print_json([asdict(acl) for acl in acls])
        return
    rows = [
        (
            *(acl.permission, acl.principal, acl.operation, acl.resource_type),
            f"{acl.resource_name}*" if acl.pattern_type == "PREFIXED" else acl.resource_name,
            acl.host,
        )
        for acl in acls
    ]
    print_table(("permission", "principal", "operation", "type", "name", "host"), rows)
