"""Tables of the documents say what the code says, all of it and nothing else."""

import inspect
import re

import pytest
import typer.main

from riacho.cli.main import cli
from riacho.http import credentials
from riacho.http.gateway import DEFAULT_URL
from service.http.problems import status_of
from service.process.limits.record_limits import RecordLimits
from service.routes.table import ROUTES
from service.settings import Settings
from storage import errors
from storage.topics.config import SETTINGS
from storage.topics.topics import NAME_CHARS_MAX, PARTITIONS_MAX
from tests.docs.markdown import ROOT, table

API = ROOT / "docs/http-api.md"
CONFIGURATION = ROOT / "docs/configuration.md"
UNITS = {"MiB": 1024 * 1024, "KiB": 1024}


def code(cell: str) -> str:
    """Return the first thing in backquotes."""
    found = re.search(r"`([^`]*)`", cell)
    return found[1] if found else ""


def number(cell: str) -> int:
    digits, _, unit = cell.replace(",", "").partition(" ")
    return int(digits) * UNITS.get(unit, 1)


def test_every_error_is_in_the_table() -> None:
    def flag(value: bool) -> str:
        return "yes" if value else "no"

    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RiachoError) and "code" in vars(kind)
    ]
    expected = {
        (kind.code, str(int(status_of(kind))), flag(kind.retryable), flag(kind.may_have_applied))
        for kind in kinds
    }
    rows = table(API, "## Errors")
    assert {(code(row[0]), *row[1:4]) for row in rows} == expected
    assert len(rows) == len(kinds)


def test_limits_are_those_of_the_code() -> None:
    defaults = Settings.model_construct()
    found = set()
    for name, default, setter, _ in table(API, "## Limits"):
        variable = code(setter)
        if variable.startswith("RIACHO_"):
            field = variable.removeprefix("RIACHO_").lower()
            found.add(field)
            assert number(default) == getattr(defaults, field), variable
        elif variable:
            assert str(number(default)) == SETTINGS[variable].default, variable
        else:
            assert number(default) in {
                RecordLimits().header_count_max,
                RecordLimits().header_name_bytes_max,
                NAME_CHARS_MAX,
                PARTITIONS_MAX,
                UNITS["MiB"],
            }, name
    limits = {
        name for name in Settings.model_fields if re.match(r"(request|fetch|wait|held)_", name)
    }
    assert limits <= found, limits - found


def test_every_variable_of_a_gateway_is_in_the_table() -> None:
    documented = {code(row[0]): row[1] for row in table(CONFIGURATION, "## Variables of a gateway")}
    expected = {f"RIACHO_{name.upper()}": field for name, field in Settings.model_fields.items()}
    assert documented.keys() == expected.keys()
    for variable, field in expected.items():
        default = field.default
        shown = f"{default:g}" if isinstance(default, float) else str(default)
        # What depends on others has no one default, and its row says on what.
        assert code(documented[variable]) == ("" if default is None else shown), variable


def test_the_credentials_of_clients_are_in_the_table() -> None:
    rows = table(CONFIGURATION, "## Credentials of clients")
    assert [code(row[0]) for row in rows] == [*credentials.VARIABLES]


def test_every_variable_of_the_command_line_is_in_the_table() -> None:
    rows = table(CONFIGURATION, "## Variables of the command line")
    documented = {code(row[0]): code(row[1]) for row in rows}
    used: dict[str, object] = {}
    pending = [typer.main.get_command(cli)]
    while pending:
        command = pending.pop()
        pending += getattr(command, "commands", {}).values()
        used |= {str(p.envvar): p.default for p in command.params if getattr(p, "envvar", None)}
    gateway = {f"RIACHO_{name.upper()}" for name in Settings.model_fields}
    assert documented == {name: str(value) for name, value in used.items() if name not in gateway}
    assert documented["RIACHO_URL"] == DEFAULT_URL


@pytest.mark.parametrize(
    ("heading", "has_effect"),
    [("## Topic settings", True), ("### Topic settings without effect", False)],
)
def test_every_topic_setting_is_in_its_table(heading: str, has_effect: bool) -> None:
    documented = {code(row[0]): code(row[1]) for row in table(CONFIGURATION, heading)}
    assert documented == {
        name: setting.default
        for name, setting in SETTINGS.items()
        if setting.has_effect is has_effect
    }


def test_fetch_parameters_are_those_of_the_code() -> None:
    path = "/v1/topics/{topic}/partitions/{partition}/records"
    rows = table(API, f"`GET {path}`")
    [route] = [each for each in ROUTES if (each.method, each.path) == ("GET", path)]
    assert [code(row[0]) for row in rows] == list(route.query)


def test_every_route_is_in_the_document() -> None:
    text = API.read_text()
    for route in ROUTES:
        assert route.path in text, route.path
