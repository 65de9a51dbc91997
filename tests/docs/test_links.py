"""Whoever follows a link, or a name of a file, arrives somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, anchors, documents, links

_CODE_PATH = re.compile(r"`((?:storage|service|riacho|benchmarks|tests|docs|localstack)/[\w./-]+)`")
_CODE_NAME = re.compile(
    r"`((?:storage|service|riacho|benchmarks|tests)/[\w/]+\.py):(\w+(?:\.\w+)*)`"
)


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    for link in links(path):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        target, _, anchor = link.partition("#")
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), f"{path.name}: {link}"
        if anchor:
            assert anchor in anchors(found), f"{path.name}: {link}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path: Path) -> None:
    for name in _CODE_PATH.findall(path.read_text()):
        assert (ROOT / name).exists(), f"{path.name} names {name}"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_that_are_named_exist(path: Path) -> None:
    for module, name in _CODE_NAME.findall(path.read_text()):
        source = (ROOT / module).read_text()
        for part in name.split("."):
            defined = rf"^\s*(?:async )?(?:def|class) {part}\b|^\s*{part}(?::| =)|self\.{part}\b"
            assert re.search(defined, source, re.MULTILINE), f"{path.name} names {module}:{name}"


def test_every_document_can_be_found_from_the_readme() -> None:
    seen, pending = set(), [ROOT / "README.md"]
    while pending:
        path = pending.pop()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        targets = (link.partition("#")[0] for link in links(path) if "://" not in link)
        pending += [(path.parent / target).resolve() for target in targets if target]
    assert set(documents()) <= seen, sorted(set(documents()) - seen)
