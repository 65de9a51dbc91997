"""Arguments that commands of connectors share."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from riacho.admin.connectors import Connectors

Name = Annotated[str, typer.Argument(metavar="CONNECTOR", help="Name of the connector.")]
File = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="JSON or properties; - is stdin."),
]
Changes = Annotated[
    list[str],
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="Over what the file says."),
]
NameOption = Annotated[
    str, typer.Option("--name", help="Name of the connector, unless the configuration has it.")
]


def connectors_at(url: str) -> "Connectors":
    from riacho.admin.connectors import Connectors

    return Connectors(url)
