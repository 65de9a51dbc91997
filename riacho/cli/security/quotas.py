"""`riacho quotas …`: list, set."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, cast

import typer

from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    bad_usage,
    pairs,
    print_json,
    print_table,
)
from riacho.http.gateway import DEFAULT_URL

if TYPE_CHECKING:
    from riacho.admin.security import Limit, QuotaDescription

commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="List and set quotas of users and clients."
)

LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)

User = Annotated[
    str | None, typer.Option("--user", help="Like ana, or '<default>' for all others.")
]
ClientId = Annotated[
    str | None, typer.Option("--client-id", help="Riacho-Client-Id of requests, or '<default>'.")
]


@commands.command("list")
def list_quotas(
    user: User = None,
    client_id: ClientId = None,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List quotas: all, or those of a user or a client.

    \b
    riacho quotas list
    riacho quotas list --user ana -o json
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        _print(admin.list_quotas(user, client_id), output)


@commands.command("set")
def set_quota(
    limits: Annotated[
        list[str],
        typer.Argument(metavar="LIMIT=VALUE…", help=f"{', '.join(LIMITS)}; 'none' removes one."),
    ],
    user: User = None,
    client_id: ClientId = None,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set or remove limits of a user, of a client, or of a client of a user.

    \b
    riacho quotas set --user ana producer_byte_rate=1048576 consumer_byte_rate=2097152
    riacho quotas set --user ana producer_byte_rate=none
    riacho quotas set --user '<default>' request_percentage=50

    Rates are bytes or partitions a second, over all gateways; request_percentage is processor
    time, 100 is one core. Who exceeds one is told to wait (429).
    """
    from riacho.admin.admin import Admin

    if user is None and client_id is None:
        raise bad_usage("say whose limits: --user, --client-id or both", "--user")
    wanted = dict(_limit(name, value) for name, value in pairs(limits, "LIMIT=VALUE"))
    with Admin(url) as admin:
        _print([admin.set_quota(wanted, user, client_id)], output, is_one=True)


def _limit(name: str, text: str) -> "tuple[Limit, float | None]":
    if name not in LIMITS:
        raise bad_usage(f"{name!r} is no limit; use {', '.join(LIMITS)}", "LIMIT=VALUE")
    limit = cast("Limit", name)
    if text == "none":
        return limit, None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise bad_usage(f"{text!r} is no number; 'none' removes the limit", "LIMIT=VALUE")
    return limit, value


def _print(found: "list[QuotaDescription]", output: Output, *, is_one: bool = False) -> None:
    if output is Output.JSON:
        documents = [asdict(one) for one in found]
        print_json(documents[0] if is_one else documents)
        return
    rows = [
        (one.user, one.client_id, *(_number(getattr(one, name)) for name in LIMITS))
        for one in found
    ]
    print_table(("user", "client id", *(name.replace("_", " ") for name in LIMITS)), rows)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"
