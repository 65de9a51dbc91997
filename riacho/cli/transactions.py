"""`riacho transaction …`: list, describe, abort."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from dataclasses import asdict
from typing import Annotated

import typer

from riacho.cli.output import (
    Output,
    OutputOption,
    Url,
    note,
    print_fields,
    print_json,
    print_table,
)
from riacho.http.gateway import DEFAULT_URL

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, describe, abort transactions.",
)

Id = Annotated[
    str, typer.Argument(metavar="TRANSACTION", help="Id of the transaction, as `list` shows it.")
]


@commands.command("list")
def list_transactions(
    ongoing: Annotated[
        bool, typer.Option("--ongoing", help="Only those that have not ended.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List transactional ids, each with its open or its last transaction.

    \b
    riacho transaction list
    riacho transaction list --ongoing -o json | jq -r '.[].transaction_id'

    A transaction that its producer sends in one call, as most do, is never ongoing.
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.list_transactions()
    if ongoing:
        found = [one for one in found if one.state == "ongoing"]
    if output is Output.JSON:
        print_json([asdict(one) for one in found])
        return
    rows = [
        (t.transactional_id, t.transaction_id, t.state, t.producer_id, t.epoch, t.started_ms)
        for t in found
    ]
    titles = ("transactional id", "transaction", "state", "producer", "epoch", "started ms")
    print_table(titles, rows)


@commands.command()
def describe(transaction: Id, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show a transaction, and the partitions that it has records for.

    \b
    riacho transaction describe copier-1.17.4
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.describe_transaction(transaction)
    if output is Output.JSON:
        print_json(asdict(found))
        return
    print_fields(
        {
            "transaction": found.transaction_id,
            "transactional id": found.transactional_id,
            "state": found.state,
            "producer": found.producer_id,
            "epoch": found.epoch,
            "started ms": found.started_ms,
            "timeout ms": found.timeout_ms,
            "partitions": found.partitions or None,
        }
    )


@commands.command()
def abort(
    transactions: Annotated[
        list[str], typer.Argument(metavar="TRANSACTION…", help="Ids of the transactions.")
    ],
    url: Url = DEFAULT_URL,
) -> None:
    """Abort transactions, so that nothing of them is written. Their producers get an error.

    \b
    riacho transaction abort copier-1.17.4

    Usually not needed: the gateway aborts transactions that exceed their timeout.
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        for transaction in transactions:
            admin.abort_transaction(transaction)
            note(f"transaction {transaction} was aborted")
