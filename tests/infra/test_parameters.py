"""What a deployment is told is read as it is meant, or refused."""

import re
from pathlib import Path

import pytest

from infra.parameters import ROOT, Parameters, WrongParameter, names

OURS = ("dashboard", "key, unless `kms=false`", "API, URL, functions, application, schedules")
"""Rows of the page that are not in docs/scale.md."""


def test_nothing_said_is_the_default() -> None:
    assert Parameters.from_context(lambda _: None) == Parameters()


def test_text_of_a_command_line_and_values_of_a_file_mean_the_same() -> None:
    text = {"zones": "a,b", "kms": "true", "memory_mb": "3008", "job_package": "/tmp/j.tgz"}
    values = {"zones": ["a", "b"], "kms": True, "memory_mb": 3008, "job_package": "/tmp/j.tgz"}

    read = Parameters.of(text)

    assert read == Parameters.of(values)
    assert read.zones == ("a", "b")
    assert read.kms is True
    assert read.job_package == Path("/tmp/j.tgz")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("zones", ""),
        ("zones", "a,a"),
        ("zones", "A b"),
        ("auth", "basic"),
        ("auth", "jwt"),  # Without an issuer nobody could be let in.
        ("memory_mb", "128"),
        ("memory_mb", "much"),
        ("log_days", "31"),
        ("kms", "perhaps"),
        ("security", "maybe"),
        ("super_users", "root"),
        ("topic_keys", "*"),
        ("topic_keys", "arn:aws:kms:us-east-1:1:key/*"),
        ("super_users", "User:a;User:b"),
        ("jwt_issuer", "http://issuer.example.org"),
        ("python", "3.11"),
        ("architecture", "sparc"),
        ("table_batch_bytes_max", "65537"),
        ("controller_minutes", "0"),
        ("containers", "-1"),
        ("name", "Ri acho"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(WrongParameter, match=r"cannot be") as caught:
        Parameters.of({name: value})
    assert str(caught.value).startswith(("jwt_issuer", name))


def test_super_users_are_principals_or_arns() -> None:
    read = Parameters.of({"super_users": "arn:aws:iam::1:role/admin,User:root"})

    assert read.security_environment == {
        "RIACHO_SECURITY": "on",
        "RIACHO_SUPER_USERS": "User:arn:aws:iam::1:role/admin;User:root",
    }
    assert Parameters.of({"security": "off"}).security_environment == {
        "RIACHO_SECURITY": "off",
        "RIACHO_INSECURE": "1",
    }


def test_a_misspelt_name_is_refused() -> None:
    with pytest.raises(WrongParameter, match="memroy"):
        Parameters.of({"memroy": "1"})
    assert "memory_mb" in names()


def test_the_documentation_has_every_parameter_with_its_default() -> None:
    text = (ROOT / "docs/deploy.md").read_text()
    table = text.split("| parameter | default | |\n|---|---|---|\n")[1].split("\n\n")[0]
    documented = {}
    for row in table.splitlines():
        name, default = (cell.strip(" `") for cell in row.split("|")[1:3])
        documented[name] = default

    assert documented == {name: shown(getattr(Parameters(), name)) for name in names()}


def test_what_it_costs_is_about_what_was_counted() -> None:
    text = (ROOT / "docs/deploy.md").read_text().split("## What it costs")[1].split("\n## ")[0]
    told = figures(text)
    counted = figures((ROOT / "docs/scale.md").read_text())

    shared = told.keys() & counted.keys()
    assert len(shared) == len(told) - len(OURS)
    for name in shared:
        # Beside dollars a month the other page has those of a GiB, in every second column.
        dollars = counted[name] if len(told[name]) == 1 else counted[name][::2]
        assert told[name] == pytest.approx(dollars, rel=0.2), name


def figures(text: str) -> dict[str, list[float]]:
    """Return the rows of a page's tables that are all numbers but for their name.

    Of those with one name the first, which is the one with dollars.
    """
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    found: dict[str, list[float]] = {}
    for name, *cells in rows:
        if cells and all(re.fullmatch(r"[\d,.]+", cell) for cell in cells):
            found.setdefault(name, [float(cell.replace(",", "")) for cell in cells])
    return found


def shown(default: object) -> str:
    match default:
        case bool():
            return str(default).lower()
        case tuple():
            return ",".join(default)
        case Path():
            return str(default.relative_to(ROOT))
        case _:
            return str(default)
