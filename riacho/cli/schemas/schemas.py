"""`riacho schema …`: register, list, show, delete; with its neighbours check, diff, level, mode."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import sys
from typing import TYPE_CHECKING, Annotated, Any

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
from riacho.cli.schemas.checking import check, diff
from riacho.cli.schemas.options import (
    File,
    Normalize,
    References,
    Subject,
    SubjectVersion,
    Type,
    pretty,
    registry_at,
    schema_in,
    subject_and_version,
)
from riacho.cli.schemas.rules import level, mode
from riacho.http.gateway import DEFAULT_URL

if TYPE_CHECKING:
    from riacho.schemas.registry import SchemaRegistry
    from riacho.schemas.values import RegisteredSchema

commands = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Register, list, show, check, compare and delete schemas.",
)


@commands.command()
def register(
    subject: Subject,
    file: File,
    type_: Type = None,
    references: References = [],  # noqa: B006
    normalize: Normalize = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Register a schema under a subject. What is there already is not registered again.

    \b
    riacho schema register orders-value order.avsc
    riacho schema register orders-value order.proto -r customer.proto=customer:1
    generate | riacho schema register orders-value - --type json -o json | jq .id
    """
    schema = schema_in(file, type_, references)
    with registry_at(url) as registry:
        made = registry.register(subject, schema, normalize=normalize)
        if not made.version:
            made = registry.look_up(subject, schema, normalize=normalize)
    if output is Output.JSON:
        print_json(_document(made))
    else:
        note(f"subject {subject} has it as version {made.version}, id {made.id}")


@commands.command("list")
def list_schemas(
    prefix: Annotated[
        str, typer.Argument(help="Only subjects that begin so; ':.staging:' is a context.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Those as well that were deleted once.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """List subjects, and the latest schema of each.

    \b
    riacho schema list
    riacho schema list orders --deleted
    riacho schema list -o json | jq -r '.[].subject'
    """
    with registry_at(url) as registry:
        found = registry.latest_schemas(prefix, deleted=deleted)
        live = set(registry.subjects(prefix)) if deleted else {one.subject for one in found}
    if output is Output.JSON:
        print_json([{**_document(one), "deleted": one.subject not in live} for one in found])
        return
    titles: tuple[str, ...] = ("subject", "version", "id", "type", "references")
    rows: list[tuple[object, ...]] = [
        (one.subject, one.version, one.id, one.kind, len(one.references)) for one in found
    ]
    if deleted:
        titles += ("deleted",)
        rows = [(*row, row[0] not in live) for row in rows]
    print_table(titles, rows)


@commands.command()
def show(
    subject: Annotated[
        str,
        typer.Argument(metavar="[SUBJECT[:VERSION]]", help="Without a version: the latest."),
    ] = "",
    schema_id: Annotated[
        int | None, typer.Option("--id", min=1, help="The schema that records name by this id.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="Only the text, as it was registered.")
    ] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Even if it was deleted once.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a schema: of a subject, or by the id that records carry.

    \b
    riacho schema show orders-value
    riacho schema show orders-value:2 --text > order.avsc
    riacho schema show --id 7 -o json | jq .used_by
    """
    if bool(subject) == (schema_id is not None):
        raise bad_usage("name a subject, or give --id", "SUBJECT")
    with registry_at(url) as registry:
        if schema_id is not None:
            found = registry.schema(schema_id)
            used_by = [f"{name}:{number}" for name, number in registry.versions_of(schema_id)]
            fields: dict[str, Any] = {"used_by": used_by}
        else:
            found, fields = _of_subject(registry, subject, deleted)
    if text:
        typer.echo(found.text)
    elif output is Output.JSON:
        print_json({**_document(found), **fields})
    else:
        _print(found, fields)


def _of_subject(
    registry: "SchemaRegistry", text: str, deleted: bool
) -> "tuple[RegisteredSchema, dict[str, Any]]":
    subject, version = subject_and_version(text)
    found = registry.version(subject, version or "latest", deleted=deleted)
    return found, {"versions": registry.versions(subject, deleted=deleted)}


def _print(schema: "RegisteredSchema", fields: dict[str, Any]) -> None:
    shown: dict[str, object] = {"id": schema.id, "type": schema.kind, "guid": schema.guid}
    if schema.subject:
        shown = {"subject": schema.subject, "version": schema.version, **shown}
    if schema.is_deleted:
        shown["deleted"] = True
    for each in schema.references:
        shown[f"reference {each.name}"] = f"{each.subject}:{each.version}"
    print_fields(shown | {name.replace("_", " "): value for name, value in fields.items()})
    typer.echo()
    typer.echo(pretty(schema))


@commands.command()
def delete(
    subject: SubjectVersion,
    permanent: Annotated[
        bool,
        typer.Option("--permanent", help="The second step, after which no version is left."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a version of a subject, or all of them.

    \b
    riacho schema delete orders-value:1
    riacho schema delete orders-value --yes
    riacho schema delete orders-value --permanent --yes

    A schema stays readable by its id, because records that carry the id may exist.
    """
    name, version = subject_and_version(subject)
    what = f"subject {name}" if version is None else f"version {version} of subject {name}"
    if not yes:
        if not sys.stdin.isatty():
            raise bad_usage("nobody is there to be asked; give --yes", "--yes")
        typer.confirm(f"Delete {what}{' permanently' if permanent else ''}?", abort=True, err=True)
    with registry_at(url) as registry:
        if version is None:
            gone = registry.delete_subject(name, permanent=permanent)
        else:
            gone = [registry.delete_version(name, version, permanent=permanent)]
    if output is Output.JSON:
        print_json({"subject": name, "versions": gone, "permanent": permanent})
    else:
        numbers = ", ".join(map(str, gone))
        note(f"deleted{' permanently' if permanent else ''}: {name}, version {numbers}")


def _document(schema: "RegisteredSchema") -> dict[str, Any]:
    """Return a schema as the registry writes it, all fields always there."""
    references = [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in schema.references
    ]
    return {
        "subject": schema.subject or None,
        "version": schema.version or None,
        "id": schema.id,
        "guid": schema.guid,
        "type": schema.kind,
        "references": references,
        "schema": schema.text,
    }


commands.command("check")(check)
commands.command("diff")(diff)
commands.command("level")(level)
commands.command("mode")(mode)
