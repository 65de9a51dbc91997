"""The pages of connectors have the keys that there are, and their examples are accepted."""

import json

import pytest

from service.connect.config.values import Values
from service.connect.connectors.api import Environment
from service.world.clock import real_world
from tests.docs.connector_tables import PAGES, keys_of, plugin
from tests.docs.markdown import ROOT

FRAME = {"name", "connector.class", "tasks.max", "topics"}


@pytest.mark.parametrize("page", PAGES)
def test_every_key_is_in_the_table(page: str) -> None:
    text = (ROOT / "docs" / "connectors" / page).read_text()

    table = text.partition("## Keys\n\n")[2].strip().splitlines()

    assert table == list(keys_of(plugin(PAGES[page])))


@pytest.mark.parametrize("page", PAGES)
def test_the_example_is_accepted(page: str) -> None:
    text = (ROOT / "docs" / "connectors" / page).read_text()
    config = json.loads(text.partition("```json\n")[2].partition("```")[0])
    found = plugin(config["connector.class"])

    Values(found.keys, config)

    assert found is plugin(PAGES[page])
    known = {key.name for key in found.keys} | {*found.ignored} | FRAME
    assert set(config) <= known
    environment = Environment(world=real_world())
    assert found.check(config, environment) == {}
