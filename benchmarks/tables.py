"""Markdown tables of what `benchmarks.side_by_side --json` has measured, for README.md.

    python -m benchmarks.tables FILE ...

Where files have a figure twice, the later one counts. In a cell is the median of the rounds, then
the least and the most of them.
"""

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.plots import Line, read

DURABILITY = {"synced": "", "page cache": " †", "memory": " ‡"}
"""Marks of what an acknowledgement does not promise."""
LATENCIES = ("p50_ms", "p99_ms", "p99.9_ms")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    lines = [line for line in read(parser.parse_args(arguments).files) if "section" in line]
    for table in tables(lines):
        print("\n".join(table) + "\n")
    return 0


def tables(lines: Sequence[Line]) -> Iterator[list[str]]:
    for section in ("produce", "fetch"):
        yield rates(
            [line for line in lines if line["section"] == section],
            lambda line: f"{size(line['size'])} × {line['batch']:,}",
        )
    yield rates(
        [line for line in lines if line["section"] == "partitions"],
        lambda line: f"{line['partitions']:,} partitions",
    )
    yield latencies([line for line in lines if line["section"] == "latency"])
    yield targets([line for line in lines if line["section"] == "targets"])


def rates(lines: Sequence[Line], column_of: Any) -> list[str]:
    """Return records/s: a row for each peer, a column for each workload."""
    cells: dict[str, dict[str, str]] = {}
    columns = list(dict.fromkeys(column_of(line) for line in lines))
    for line in lines:
        found = line["measures"].get("records_per_s")
        if found:
            cells.setdefault(named(line), {})[column_of(line)] = spread(found)
    return [*header(["records/s", *columns]), *rows(cells, columns)]


def latencies(lines: Sequence[Line]) -> list[str]:
    cells: dict[str, dict[str, str]] = {}
    columns = list(dict.fromkeys(load(line) for line in lines))
    for line in lines:
        measures = line["measures"]
        shown = [short(measures[name]["median"]) for name in LATENCIES if name in measures]
        cells.setdefault(named(line), {})[load(line)] = " / ".join(shown)
    return [*header(["p50 / p99 / p99.9, ms", *columns]), *rows(cells, columns)]


def load(line: Line) -> str:
    return "half of our capacity" if line["load"] == "same" else f"{line['load']} of its own"


def targets(lines: Sequence[Line]) -> list[str]:
    latest = {(line["what"], line["against"]): line for line in lines}
    found = header(["target", "against", "wanted", "measured", "spread", ""])
    for line in latest.values():
        shown = ["not measured", ""]
        if "median" in line:
            shown = [short(line["median"]), f"{short(line['min'])} to {short(line['max'])}"]
        cells = [line["what"], line["against"], line["wanted"], *shown, line["verdict"]]
        found.append(f"| {' | '.join(cells)} |")
    return found


def header(columns: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]


def rows(cells: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> list[str]:
    return [
        f"| {name} | {' | '.join(found.get(column, '') for column in columns)} |"
        for name, found in cells.items()
    ]


def named(line: Line) -> str:
    return f"{line['peer']}{DURABILITY.get(line['durability'], '')}"


def size(size_bytes: int) -> str:
    return "1 KiB" if size_bytes == 1024 else f"{size_bytes} B"


def spread(found: Mapping[str, float]) -> str:
    return f"**{short(found['median'])}** ({short(found['min'])} to {short(found['max'])})"


def short(value: float) -> str:
    """Return three digits, and k or M for thousands and millions."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if value >= unit:
            return short(value / unit) + name
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
