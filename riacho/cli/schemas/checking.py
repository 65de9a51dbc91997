"""`riacho schema check` and `diff`: may this schema follow, and what is different."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from riacho.cli.output import Output, OutputOption, Url, bad_usage, explain, note, print_json
from riacho.cli.schemas.options import (
    File,
    LevelName,
    Normalize,
    References,
    Subject,
    Type,
    registry_at,
    schema_in,
)
from riacho.http.gateway import DEFAULT_URL
from storage.errors import RiachoError, Unauthorized, UnknownSchema

if TYPE_CHECKING:
    from riacho.schemas.differences import SchemaChange
    from riacho.schemas.registry import SchemaRegistry
    from riacho.schemas.values import SchemaCheck, SchemaText, SchemaViolation


def check(
    subject: Subject,
    file: File,
    type_: Type = None,
    references: References = [],  # noqa: B006
    every: Annotated[
        bool, typer.Option("--all", help="Against all versions, whatever the level says.")
    ] = False,
    version: Annotated[
        str, typer.Option("--version", help="Against this one: a number, or latest.")
    ] = "",
    level: Annotated[
        LevelName | None,
        typer.Option("--level", help="Instead of that of the subject.", case_sensitive=False),
    ] = None,
    normalize: Normalize = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a schema may follow those of a subject; nothing is registered.

    \b
    riacho schema check orders-value order.avsc && deploy
    riacho schema check orders-value order.avsc --all
    riacho schema check orders-value order.avsc --level FULL -o json | jq .violations

    It is compared as a registration would, with the latest version or, by a transitive level, with
    all. Exit code 0: it may; 1: it may not, and every rule it breaks is printed; 2: wrong usage, no
    valid schema, or the registry cannot be asked.
    """
    if every and version:
        raise bad_usage("is one version, --all are all of them", "--version")
    schema = schema_in(file, type_, references)
    with _failures_are_no_verdict():
        document, found = _checked(url, subject, schema, every, version, level, normalize)
    if output is Output.JSON:
        print_json({**document, **asdict(found)})
    else:
        _print_verdict(document["level"], document["versions"], found)
    if not found.is_compatible:
        raise typer.Exit(1)


@contextmanager
def _failures_are_no_verdict() -> Iterator[None]:
    """End with 2 if the question could not be answered: 1 means no."""
    try:
        yield
    except RiachoError as error:
        note(f"riacho: {explain(error)}")
        raise typer.Exit(2) from None


def _checked(
    url: str,
    subject: str,
    schema: "SchemaText",
    every: bool,
    version: str,
    level: LevelName | None,
    normalize: bool,
) -> "tuple[dict[str, object], SchemaCheck]":
    """Return what was compared, and the verdict."""
    only = _number(version, "--version") if version else None
    with registry_at(url) as registry:
        holds = level or _level_of(registry, subject)
        if every:
            if holds is None:
                raise bad_usage("the level of the subject is hidden from us; give it", "--level")
            holds = _transitive(holds)
        asked = holds if every or level is not None else None
        found = registry.check(subject, schema, only, level=asked or "", normalize=normalize)
        versions = _versions_of(registry, subject)
    if only is not None:
        versions = versions[-1:] if only == "latest" else [only]
    elif holds is not None and not holds.endswith("_TRANSITIVE"):
        versions = versions[-1:]
    return {"subject": subject, "level": holds, "versions": versions}, found


def _level_of(registry: "SchemaRegistry", subject: str) -> str | None:
    """Return the level of a subject; None: we may use the subject, but not see that."""
    try:
        return registry.level(subject)
    except (UnknownSchema, Unauthorized):
        return None


def _versions_of(registry: "SchemaRegistry", subject: str) -> list[int]:
    try:
        return registry.versions(subject)
    except UnknownSchema:
        return []


def _transitive(level: str) -> str:
    return level if level == "NONE" or level.endswith("_TRANSITIVE") else f"{level}_TRANSITIVE"


def _number(text: str, parameter: str) -> "int | Literal['latest']":
    if text == "latest":
        return "latest"
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise bad_usage(f"{text!r} is no version; give a number, or latest", parameter)
    return int(text)


def _print_verdict(level: object, versions: object, found: "SchemaCheck") -> None:
    by = level or "the level of the subject"
    if not found.is_compatible:
        beside = f", beside version {found.version}" if found.version is not None else ""
        typer.echo(f"not compatible by {by}{beside}:")
        _print_violations(found.violations)
    elif not versions:
        typer.echo("compatible: the subject has no versions yet")
    elif isinstance(versions, list):
        typer.echo(f"compatible by {by} with version {', '.join(map(str, versions))}")


def _print_violations(violations: "Sequence[SchemaViolation]") -> None:
    for each in violations:
        where = f" at {each.path or '/'} of the {each.side} schema" if each.side else ""
        typer.echo(f"  {each.rule}{where}: {' '.join(each.message.split())}")


def diff(
    subject: Subject,
    before: Annotated[str, typer.Argument(metavar="VERSION", help="A number, or latest.")],
    after: Annotated[str, typer.Argument(metavar="[VERSION]", help="The newer one.")] = "latest",
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what changed between two versions, and which levels the change keeps.

    \b
    riacho schema diff orders-value 1
    riacho schema diff orders-value 1 2 -o json | jq .levels
    """
    from riacho.schemas.differences import changes

    first, second = _number(before, "VERSION"), _number(after, "VERSION")
    with registry_at(url) as registry:
        old, new = registry.version(subject, first), registry.version(subject, second)
        backward = registry.check(subject, new, old.version, level="BACKWARD")
        forward = registry.check(subject, new, old.version, level="FORWARD")
    found = changes(old, new)
    levels = {
        "BACKWARD": backward.is_compatible,
        "FORWARD": forward.is_compatible,
        "FULL": backward.is_compatible and forward.is_compatible,
    }
    if output is Output.JSON:
        print_json(
            {
                "subject": subject,
                "versions": [old.version, new.version],
                "changes": [asdict(each) for each in found],
                "levels": levels,
                "violations": {
                    "BACKWARD": [asdict(each) for each in backward.violations],
                    "FORWARD": [asdict(each) for each in forward.violations],
                },
            }
        )
        return
    _print_changes(found)
    typer.echo()
    for name, verdict, who in (
        ("BACKWARD", backward, f"{new.version} reads data of {old.version}"),
        ("FORWARD", forward, f"{old.version} reads data of {new.version}"),
    ):
        typer.echo(f"{name.ljust(8)}  {'yes' if verdict.is_compatible else 'no'}: version {who}")
        _print_violations(verdict.violations)
    typer.echo(f"FULL      {'yes' if levels['FULL'] else 'no'}: each reads data of the other")


def _print_changes(found: "Sequence[SchemaChange]") -> None:
    if not found:
        typer.echo("no change")
    for each in found:
        match each.kind:
            case "lines":
                typer.echo(each.before)
            case "added":
                typer.echo(f"+ {each.path}  {each.after}")
            case "removed":
                typer.echo(f"- {each.path}  {each.before}")
            case "changed":
                typer.echo(f"~ {each.path}  {each.before} -> {each.after}")
            case "moved":
                typer.echo(f"~ {each.path}  in another order: {each.after}")
