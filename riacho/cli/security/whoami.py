"""`riacho whoami`: who the gateway takes us for."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

from dataclasses import asdict

from riacho.cli.output import Output, OutputOption, Url, print_fields, print_json
from riacho.cli.security.keys import scope_text
from riacho.http.gateway import DEFAULT_URL


def whoami(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show who we are to the gateway, and by which credential.

    \b
    riacho whoami
    RIACHO_TOKEN=rk_... riacho whoami -o json | jq -r .principal
    """
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        found = admin.whoami()
    if output is Output.JSON:
        print_json(asdict(found))
        return
    print_fields(
        {
            "principal": found.principal,
            "credential": found.credential or None,
            "door": found.door,
            "super": found.super,
            "scope": scope_text(found.scope),
            "name prefix": found.name_prefix or None,
            "expires ms": found.expires_ms,
        }
    )
