"""The tour in docs/connect.md, as a reader would take it, and its tables."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from service.connect.config.common import COMMON_KEYS, SINK_KEYS, SOURCE_KEYS
from service.connect.config.keys import Key
from service.connect.connectors.catalog import plugins
from service.connect.converters.choice import CONVERTERS
from tests.docs.connector_tables import key_lines
from tests.docs.markdown import ROOT, blocks
from tests.docs.running import shell
from tests.gateway import GatewayProcess

GUIDE = ROOT / "docs/connect.md"


@pytest.mark.slow
def test_the_tour_says_what_the_guide_says(gateway: GatewayProcess, tmp_path: Path) -> None:
    first, second = (each.text for each in blocks(GUIDE, "sh"))

    *records, titles, connector = shell(first, gateway, tmp_path).splitlines()
    assert len(records) == 5
    assert all(record.startswith('{"') for record in records)
    assert titles.startswith("NAME")
    assert connector.split()[:4] == ["orders", "source", "Datagen", "RUNNING"]

    told = shell(second, gateway, tmp_path)
    assert '"connector":{"state":"RUNNING"' in told
    assert '"iterations":"7"' in told
    assert "have been reset successfully" in told
    assert "there is no configuration 'iteratoins' of this connector; did you mean" in told


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Keys of every connector", COMMON_KEYS),
        ("Keys of sources", SOURCE_KEYS),
        ("Keys of sinks", SINK_KEYS),
    ],
)
def test_tables_of_keys_are_those_of_the_code(heading: str, keys: Sequence[Key]) -> None:
    _, _, below = GUIDE.read_text().partition(f"### {heading}\n\n")
    assert below.startswith("\n".join(key_lines(keys)) + "\n\n")


def test_the_guide_lists_every_connector_with_its_promise() -> None:
    rows = [line for line in GUIDE.read_text().splitlines() if "](connectors/" in line]
    found = [re.match(r"\| \[`(\w+)`\]\(.*?\) \| (\w+) \| (.*) \|$", row) for row in rows]
    assert [each.groups() for each in found if each is not None] == [
        (each.class_name, each.kind.value, each.promises) for each in plugins()
    ]


def test_the_guide_names_all_converters() -> None:
    text = GUIDE.read_text()
    assert [each.short_name for each in CONVERTERS if f"`{each.short_name}`" not in text] == []
