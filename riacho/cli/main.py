"""The command `riacho`: serve, topics, produce, consume, groups, schemas, maintenance of stores.

Only modules that every command needs are imported here; others are imported when a command runs,
so that `riacho --help` appears at once. Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from riacho.cli import clusters, groups, serve, topics, transactions
from riacho.cli.connect import connect, dlq
from riacho.cli.maintenance import compact, doctor, fsck, maintain, retention, sweep
from riacho.cli.output import Output, OutputOption, Url, errors_reported, print_json
from riacho.cli.records import consume, produce
from riacho.cli.schemas import schemas
from riacho.cli.security import acls, keys, quotas
from riacho.cli.security.whoami import whoami
from riacho.cli.sql import sql
from riacho.http.gateway import DEFAULT_URL


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        with errors_reported():
            return super().invoke(ctx)


cli = typer.Typer(
    cls=_Commands,
    name="riacho",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Event streaming without brokers: a Kafka-class log over HTTP and object storage.

\b
Start:   riacho serve
Then:    riacho topic create orders -p 3
         echo hello | riacho produce orders
         riacho consume orders -e

Client commands find the gateway by --url or RIACHO_URL. RIACHO_TOKEN=... sends an API key or a
token; RIACHO_CA_FILE=... says whose certificates to trust, RIACHO_CLIENT_CERT=... shows one. Behind
AWS's doors RIACHO_AUTH=aws signs requests.
""",
)
cli.add_typer(topics.commands, name="topic")
cli.add_typer(groups.commands, name="group")
cli.add_typer(transactions.commands, name="transaction")
cli.add_typer(schemas.commands, name="schema")
cli.add_typer(connect.commands, name="connect")
cli.add_typer(dlq.commands, name="dlq")
cli.add_typer(keys.commands, name="keys")
cli.add_typer(acls.commands, name="acls")
cli.add_typer(quotas.commands, name="quotas")
cli.command("whoami")(whoami)
cli.command("serve")(serve.serve)
cli.command("produce")(produce.produce)
cli.command("consume")(consume.consume)
cli.command("doctor")(doctor.doctor)
cli.command("fsck")(fsck.fsck)
cli.command("sql")(sql.sql)
cli.command("compact")(compact.compact)
cli.command("maintain")(maintain.maintain)
cli.command("retention")(retention.retention)
cli.command("sweep")(sweep.sweep)


@cli.command()
def cluster(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the gateways, the controller, zones and their health, and the state of partitions.

    \b
    riacho cluster
    riacho cluster -o json | jq .version
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.cluster()
    if output is Output.JSON:
        print_json(found)
        return
    clusters.show(found)


@cli.command()
def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print it.")] = (
        Output.TABLE
    ),
) -> None:
    """Show the version of this installation."""
    from riacho import __version__

    if output is Output.JSON:
        print_json({"version": __version__})
    else:
        typer.echo(f"riacho {__version__}")


def app() -> None:
    """Run the command line; the entry point of the installed script."""
    code: int | str | None = 0
    try:
        cli(prog_name="riacho")
    except SystemExit as stop:
        code = stop.code
    _leave(code)


def _leave(code: int | str | None) -> None:
    """End the process with this exit code."""
    if "obstore" in sys.modules and (code is None or isinstance(code, int)):
        # Its threads may still be releasing Python objects. If the interpreter shuts down
        # meanwhile, the process aborts (seen once in a few hundred runs) after a successful run.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    sys.exit(code)
