"""The pages of connectors have the keys, class names and promises that the code has."""

import json
import re
from pathlib import Path

import pytest

from service.connect.connectors.api import Environment, PluginKind
from service.connect.connectors.catalog import plugin_of
from service.world.clock import real_world
from tests.docs.connector_tables import lines_of
from tests.docs.markdown import ROOT, blocks

PAGES = sorted((ROOT / "docs/connectors").glob("*.md"))
DOCUMENTED = [
    (page, name)
    for page in PAGES
    for name in re.findall(r"^#+ Keys of `(\w+)`$", page.read_text(), re.MULTILINE)
]
OF_THE_FRAME = re.compile(
    r"name|connector\.class|tasks\.max|topics(\.regex)?|(key|value|header)\.converter.*|errors\..*"
    r"|transforms.*|predicates.*"
)


@pytest.mark.parametrize(("page", "name"), DOCUMENTED, ids=[name for _, name in DOCUMENTED])
def test_the_table_of_keys_is_that_of_the_code(page: Path, name: str) -> None:
    plugin = plugin_of(name)
    assert plugin is not None
    text = page.read_text()
    _, _, rest = text.partition(f" Keys of `{name}`\n")
    table = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert table is not None
    assert table[0].splitlines() == list(lines_of(plugin)), f"make it: see {lines_of.__module__}"


@pytest.mark.parametrize(("page", "name"), DOCUMENTED, ids=[name for _, name in DOCUMENTED])
def test_a_page_says_every_name_and_the_promise(page: Path, name: str) -> None:
    plugin = plugin_of(name)
    assert plugin is not None
    text = " ".join(page.read_text().split())
    for alias in plugin.aliases:
        assert f"`{alias}`" in text
    assert plugin.promises in text


def test_the_simple_connectors_are_documented() -> None:
    names = {name for _, name in DOCUMENTED}
    simple = {"FileStreamSource", "FileStreamSink", "Datagen"}
    assert simple | {"HttpSink", "AivenHttpSink", "HttpSource"} <= names


CONFIGS = [block for page in PAGES for block in blocks(page, "json")]


@pytest.mark.parametrize("block", CONFIGS, ids=str)
def test_configurations_of_the_pages_are_accepted(block: object) -> None:
    config = json.loads(block.text)  # type: ignore[attr-defined]
    config = config.get("config", config)
    plugin = plugin_of(config["connector.class"])
    assert plugin is not None
    environment = Environment(world=real_world(), files=ROOT)

    known = {key.name for key in plugin.keys} | set(plugin.ignored)
    others = [key for key in config if key not in known and not OF_THE_FRAME.fullmatch(key)]
    assert [key for key in others if not key.startswith(tuple(plugin.prefixes))] == []
    assert plugin.check(config, environment) == {}
    assert ("topics" in config or "topics.regex" in config) == (plugin.kind is PluginKind.SINK)
