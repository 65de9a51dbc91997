"""The documents as tests see them: files, links, fenced blocks, tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)|!\[[^\]]*\]\((?P<image>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: what follows the opening fence, the text, and the line it begins at."""

    path: Path
    info: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def documents() -> list[Path]:
    """Return every Markdown file of the repository, but not those of what is installed in it."""
    top = list(ROOT.glob("*.md"))
    below = [path for folder in ("docs", "localstack") for path in (ROOT / folder).rglob("*.md")]
    return sorted(top + below)


def blocks(path: Path, info: str | None = None) -> list[Block]:
    """Return the fenced blocks of a document; only those with this `info` if it is given."""
    text = path.read_text()
    found = [
        Block(path, match["info"].strip(), match["text"], text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
    ]
    return [block for block in found if info is None or block.info == info]


def prose(path: Path) -> str:
    """Return the document without its fenced blocks."""
    return _FENCE.sub("", path.read_text())


def links(path: Path) -> Iterator[str]:
    for match in _LINK.finditer(prose(path)):
        yield match["target"] or match["image"]


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    texts = (match["text"] for match in _HEADING.finditer(prose(path)))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def table(path: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, cells without their backquotes."""
    _, found, rest = path.read_text().partition(f"\n{heading}\n")
    assert found, f"{path.name} has no heading {heading!r}"
    rows: list[list[str]] = []
    for line in rest.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows.append([cell.strip().replace("\\|", "|") for cell in cells])
        elif rows or line.startswith("#"):
            break
    return rows[2:]
