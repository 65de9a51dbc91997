"""`riacho keys …`: create, list, describe, rotate, revoke."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

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
from riacho.cli.security.options import (
    Cluster,
    Connectors,
    Groups,
    Operations,
    Subjects,
    Topics,
    TransactionalIds,
    principal_of,
    resources,
    scope_of,
)
from riacho.clock import now_ms
from riacho.http.gateway import DEFAULT_URL

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, describe, rotate, revoke API keys.",
)

ROOT = "User:root"
"""Of a super key that is made in the stores, unless the command says another."""

KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `list` shows it.")]


@commands.command()
def create(
    context: typer.Context,
    principal: Annotated[
        str, typer.Option(help="Who has the key, like User:ana; default: the caller.")
    ] = "",
    topics: Topics = [],  # noqa: B006
    groups: Groups = [],  # noqa: B006
    transactional_ids: TransactionalIds = [],  # noqa: B006
    subjects: Subjects = [],  # noqa: B006
    connectors: Connectors = [],  # noqa: B006
    cluster: Cluster = False,
    operations: Operations = [],  # noqa: B006
    expires: Annotated[
        str, typer.Option(help="How long it is valid, like 30d or 12h; default: no end.")
    ] = "",
    name_prefix: Annotated[
        str, typer.Option(help="Isolate a tenant: put this in front of all names it uses.")
    ] = "",
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    is_super: Annotated[
        bool,
        typer.Option("--super", help="It may do everything. Made in the stores, by their owner."),
    ] = False,
    via_gateway: Annotated[
        bool, typer.Option("--via-gateway", help="With --super: ask a gateway, as a super user.")
    ] = False,
    data: Annotated[
        Path, typer.Option(envvar="RIACHO_DATA", help="With --super: as for `riacho serve`.")
    ] = Path("riacho-data"),
    zones: Annotated[
        str, typer.Option(envvar="RIACHO_ZONES", help="With --super: as for `riacho serve`.")
    ] = "",
    metadata: Annotated[
        str, typer.Option(envvar="RIACHO_METADATA", help="With --super: as for `riacho serve`.")
    ] = "",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make an API key, and print it; nothing shows it a second time.

    \b
    riacho keys create --super --principal User:root
    riacho keys create --principal User:ana --expires 30d
    riacho keys create --topic orders --topic 'acme.*' --group g --operation READ
    riacho keys create --principal User:acme --name-prefix acme.

    With --super it is made in the stores, those that `riacho serve` uses with the same options;
    whether a gateway runs does not matter. So there is no default password. Otherwise, and with
    --via-gateway or --url, a gateway makes it: RIACHO_TOKEN says who asks.

    --topic, --group and so on limit what the key is for. ACLs say what its principal may do, and
    the key may do what both allow.
    """
    found = resources(topics, groups, transactional_ids, subjects, connectors, cluster=cluster)
    if via_gateway and not is_super:
        raise bad_usage("is for --super; other keys are always made by a gateway", "--via-gateway")
    body: dict[str, Any] = {
        "principal": principal_of(principal) if principal else None,
        "expires_ms": _expires_ms(expires),
        "scope": scope_of(found, operations),
        "name_prefix": name_prefix,
        "super": is_super,
        "description": description,
    }
    source = context.get_parameter_source("url")
    asks_gateway = source is not None and source.name == "COMMANDLINE"
    if is_super and not (via_gateway or asks_gateway):
        from riacho.cli.security.store import create_key
        from service.settings import Settings

        settings = Settings(data=data, zones=zones, metadata=metadata)
        made = create_key(settings, {**body, "principal": body["principal"] or ROOT})
        place = metadata or str(settings.data.absolute())
        note(f"made in {place}; a gateway on it accepts the key within 3 seconds")
    else:
        made = _made_by_gateway(url, body)
    _show_secret(made, output)


def _made_by_gateway(url: str, body: dict[str, Any]) -> dict[str, Any]:
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        made = admin.create_key(
            body["principal"],
            expires_ms=body["expires_ms"],
            scope=body["scope"],
            name_prefix=body["name_prefix"],
            is_super=body["super"],
            description=body["description"],
        )
    return asdict(made)


@commands.command("list")
def list_keys(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """List API keys: all for administrators, else one's own.

    \b
    riacho keys list
    riacho keys list -o json | jq -r '.[] | select(.super) | .id'
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.list_keys()
    if output is Output.JSON:
        print_json([asdict(key) for key in found])
        return
    rows = [
        (
            *(key.id, key.principal, key.super, scope_text(key.scope), key.name_prefix or None),
            *(key.expires_ms, key.description or None),
        )
        for key in found
    ]
    titles = ("id", "principal", "super", "scope", "name prefix", "expires ms", "description")
    print_table(titles, rows)


@commands.command()
def describe(key: KeyId, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show an API key, without its secret.

    \b
    riacho keys describe 4fXq2aB7Lm0ZkT9c
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = asdict(admin.describe_key(key))
    if output is Output.JSON:
        print_json(found)
    else:
        _print_key(found)


@commands.command()
def rotate(
    key: KeyId,
    overlap: Annotated[
        str, typer.Option(help="How long the old secret is still accepted, like 1h or 0s.")
    ] = "1h",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Give an API key a new secret, and print it; the old one works for a while longer.

    \b
    riacho keys rotate 4fXq2aB7Lm0ZkT9c --overlap 24h

    If the command fails after it was sent, repeat it: the key then gets another secret.
    """
    from riacho.admin.admin import Admin

    overlap_ms = _milliseconds(overlap, "--overlap")
    with Admin(url) as admin:
        made = asdict(admin.rotate_key(key, overlap_ms))
    _show_secret(made, output)


@commands.command()
def revoke(
    keys: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of the keys.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Revoke API keys. Every gateway refuses them, and keys they have made, within 5 seconds.

    \b
    riacho keys revoke 4fXq2aB7Lm0ZkT9c
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        for key in keys:
            admin.revoke_key(key)
            note(f"key {key} was revoked")


def scope_text(scope: Mapping[str, Any] | None) -> str | None:
    """Return a scope in words: `topics=orders,acme.* operations=READ`; None: it has no limits."""
    if scope is None:
        return None
    words = []
    for name, value in scope.items():
        match name, value:
            case "operations", list():
                words.append(f"operations={','.join(value)}")
            case _, list() if value:
                names = ",".join(each.get("exact") or f"{each['prefix']}*" for each in value)
                words.append(f"{name}={names}")
            case _, True:
                words.append(name)
    return " ".join(words) or "nothing"


def _show_secret(made: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        print_json(made)
        return
    _print_key(made)
    typer.echo(f"\n{made['key']}\n")
    note(
        "It is not shown again. Use it with RIACHO_TOKEN=<key> riacho ..., or"
        ' curl -H "Authorization: Bearer <key>" ...'
    )


def _print_key(key: dict[str, Any]) -> None:
    print_fields(
        {
            "id": key["id"],
            "principal": key["principal"],
            "super": key["super"],
            "scope": scope_text(key["scope"]),
            "name prefix": key["name_prefix"] or None,
            "expires ms": key["expires_ms"],
            "created ms": key["created_ms"],
            "created by": key["created_by"] or None,
            "parent": key["parent"],
            "old secret until ms": key["old_secret_until_ms"],
            "description": key["description"] or None,
        }
    )


def _expires_ms(text: str) -> int | None:
    return now_ms() + _milliseconds(text, "--expires") if text else None


def _milliseconds(text: str, parameter: str) -> int:
    from service.world.durations import seconds

    try:
        return int(seconds(text) * 1000)
    except ValueError as error:
        raise bad_usage(str(error), parameter) from None
