"""Output of commands: tables or JSON on stdout, one line for an error on stderr."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from riacho.errors import GatewayUnreachable
from storage.errors import RiachoError


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


Url = Annotated[
    str,
    typer.Option("--url", envvar="RIACHO_URL", help="Where the gateway is.", show_envvar=True),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns; numbers to the right, so that they can be compared."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    is_number = [
        bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(titles))
    ]
    for line in ([title.upper() for title in titles], *texts):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        )
        typer.echo("  ".join(cells).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        typer.echo(f"{name.ljust(width)}  {_text(value)}".rstrip())


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, list | tuple):
        return ",".join(map(str, cell))
    return str(cell)


def note(text: str) -> None:
    """Print to stderr, where it does not mix with results."""
    typer.echo(text, err=True)


@contextmanager
def errors_reported() -> Iterator[None]:
    """Turn errors into one line and an exit code; never a traceback."""
    try:
        yield
        sys.stdout.flush()
    except RiachoError as error:
        note(f"riacho: {explain(error)}")
        raise typer.Exit(1) from None
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python would report that once more when
        # it flushes stdout at exit, so stdout is pointed at /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def explain(error: RiachoError) -> str:
    """Return the error and what to do about it, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, GatewayUnreachable) and error.retryable:
        return f"{text}; is `riacho serve` running? RIACHO_URL or --url say where"
    text = f"{text} ({error.code})"
    if error.may_have_applied:
        text += "; it may have been done all the same, so look before you try again"
    elif error.retryable:
        text += "; nothing was done, try again later"
    request_id = getattr(error, "request_id", None)
    return f"{text} [request {request_id}]" if request_id and error.retryable else text


def bad_usage(text: str, parameter: str) -> typer.BadParameter:
    """Return the error that ends a command with exit code 2."""
    return typer.BadParameter(text, param_hint=parameter)


def pairs(texts: Sequence[str], parameter: str) -> list[tuple[str, str]]:
    """Return `name=value` texts as pairs."""
    found = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise bad_usage(f"{text!r} is not like name=value", parameter)
        found.append((name, value))
    return found
