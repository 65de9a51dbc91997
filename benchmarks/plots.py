"""Plots of what benchmarks have measured, from their lines of JSON.

    python -m benchmarks.plots FILE ... [--into benchmarks/plots]

| plot | from |
|---|---|
| `produce.svg`, `fetch.svg`: throughput against batch size | `side_by_side --json` |
| `latency.svg`: p50 and p99 against load | `side_by_side --json` |
| `cost.svg`: time and requests against data size | `growth`: what, size, ms, requests |

Where a file has a figure twice, the later one counts. The same lines give the same bytes: no
dates, no random identifiers, and text stays text.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

Line = dict[str, Any]

INTO = Path(__file__).parent / "plots"
COLOURS = {
    "Riacho, JSON": "#0072b2",
    "Riacho, Arrow": "#56b4e9",
    "Kafka": "#d55e00",
    "Kafka, synced": "#e69f00",
    "HTTP bridge, Kafka": "#8c564b",
    "NATS JetStream": "#009e73",
    "Redis Streams": "#cc79a7",
    "RabbitMQ streams": "#7f3c8d",
}
"""Distinguishable also with red-green colour blindness."""
OTHERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#7f3c8d", "#56b4e9", "#8c564b")
FLOOR_COLOUR = "#999999"
DECADES_MIN = 2
"""For costs: small changes must look small."""
MARKERS = "osD^v<>pPX*h"
DASHED = {"page cache": "--", "memory": ":"}
"""Peers that may lose records in a power cut are drawn differently."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "riacho",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plots", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--into", type=Path, default=INTO)
    given = parser.parse_args(arguments)
    for path in draw_all(read(given.files), given.into):
        print(path)
    return 0


def read(files: Iterable[Path]) -> list[Line]:
    return [
        json.loads(line)
        for path in files
        for line in path.read_text().splitlines()
        if line.startswith("{")
    ]


def draw_all(lines: Sequence[Line], into: Path) -> list[Path]:
    """Draw what there are lines for, and return the files."""
    beside = [line for line in lines if line.get("benchmark") == "side_by_side"]
    growth = [line for line in lines if line.get("benchmark") == "growth"]
    drawn: list[tuple[str, list[Line], Callable[[list[Line]], Figure]]] = [
        ("produce", _of_section(beside, "produce"), throughput),
        ("fetch", _of_section(beside, "fetch"), throughput),
        ("latency", _of_section(beside, "latency"), latency),
        ("cost", growth, cost),
    ]
    into.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, chosen, draw in drawn:
        if chosen:
            with mpl.rc_context(STYLE):
                figure = draw(chosen)
                path = into / f"{name}.svg"
                figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
            # Trailing blanks would show up as changes in a diff.
            text = path.read_text()
            path.write_text("\n".join(row.rstrip() for row in text.splitlines()) + "\n")
            paths.append(path)
    return paths


def _of_section(lines: Sequence[Line], section: str) -> list[Line]:
    return [line for line in lines if line["section"] == section]


def throughput(lines: list[Line]) -> Figure:
    """Records a second against batch size: a panel for each record size, a line for each peer."""
    sizes = sorted({line["size"] for line in lines})
    peers = _peers(lines)
    figure, panels = _panels(len(sizes))
    for panel, size in zip(panels, sizes, strict=True):
        for number, (peer, durability) in enumerate(peers.items()):
            points = _points(
                [line for line in lines if line["size"] == size and line["peer"] == peer],
                "batch",
                "records_per_s",
            )
            _line(panel, points, peer, durability, number)
        _logarithmic(panel)
        panel.set_title(f"records of {size:,} B")
        panel.set_xlabel("records in a batch")
    panels[0].set_ylabel("records/s")
    _legend(figure, panels)
    return figure


def latency(lines: list[Line]) -> Figure:
    """p50 and p99 against the rate that was offered."""
    peers = _peers(lines)
    figure, panels = _panels(2)
    for panel, (measure, title) in zip(panels, (("p50_ms", "p50"), ("p99_ms", "p99")), strict=True):
        for number, (peer, durability) in enumerate(peers.items()):
            of_peer = [line for line in lines if line["peer"] == peer and line["load"] != "same"]
            _line(panel, _points(of_peer, "rate", measure), peer, durability, number)
        _logarithmic(panel)
        panel.set_title(f"{title}, at 10, 50 and 90 % of each one's capacity")
        panel.set_xlabel("records/s offered, one by one")
    panels[0].set_ylabel("from due until a reader has it, ms")
    _legend(figure, panels)
    return figure


def cost(lines: list[Line]) -> Figure:
    """Time and requests against how much data there is."""
    whats = list(dict.fromkeys(line["what"] for line in lines))
    figure, panels = _panels(2, is_shared=False)
    for panel, (field, label) in zip(
        panels, (("ms", "time, ms"), ("requests", "requests")), strict=True
    ):
        for number, what in enumerate(whats):
            found = {
                line["size"]: line[field]
                for line in lines
                if line["what"] == what and line.get(field) is not None
            }
            _line(panel, [(x, y, y, y) for x, y in sorted(found.items())], what, "", number)
        _logarithmic(panel)
        _at_least_decades(panel)
        panel.set_xlabel(_unit(lines))
        panel.set_ylabel(label)
    _legend(figure, panels)
    return figure


def _unit(lines: Sequence[Line]) -> str:
    """Return what sizes are sizes of, if the lines say so."""
    units = dict.fromkeys(line["unit"] for line in lines if "unit" in line)
    return f"size of the data, {', '.join(units)}" if units else "size of the data"


Point = tuple[float, float, float, float]
"""Where, and the median, the least and the most there."""


def _points(lines: Sequence[Line], across: str, measure: str) -> list[Point]:
    found: dict[float, Point] = {}
    for line in lines:
        spread = line["measures"].get(measure)
        if spread is not None:
            found[line[across]] = (line[across], spread["median"], spread["min"], spread["max"])
    return [found[x] for x in sorted(found)]


def _line(panel: Axes, points: Sequence[Point], label: str, durability: str, number: int) -> None:
    points = [point for point in points if point[1] > 0]
    if not points:
        return
    xs, medians, leasts, mosts = zip(*points, strict=True)
    is_floor = label.startswith("floor")
    colour = FLOOR_COLOUR if is_floor else COLOURS.get(label, OTHERS[number % len(OTHERS)])
    panel.plot(
        xs,
        medians,
        DASHED.get(durability, "-"),
        marker=MARKERS[number % len(MARKERS)],
        markersize=4.5,
        linewidth=0.8 if is_floor else 1.6,
        color=colour,
        label=f"{label} ({durability})" if durability else label,
    )
    if len(xs) > 1 and not is_floor:
        panel.fill_between(xs, leasts, mosts, color=colour, alpha=0.12, linewidth=0)


def _peers(lines: Sequence[Line]) -> dict[str, str]:
    """Return how durable each is; the floors last."""
    named = {line["peer"]: line["durability"] for line in lines}
    return dict(sorted(named.items(), key=lambda item: item[0].startswith("floor")))


def _panels(count: int, *, is_shared: bool = True) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.8 * count, 4.4), layout="constrained")
    axes = figure.subplots(1, count, sharey=is_shared, squeeze=False)
    return figure, list(axes[0])


def _logarithmic(panel: Axes) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


def _at_least_decades(panel: Axes) -> None:
    least, most = panel.get_ylim()
    bottom = 10 ** math.floor(math.log10(least))
    panel.set_ylim(bottom, max(10 ** math.ceil(math.log10(most)), bottom * 10**DECADES_MIN))


def _legend(figure: Figure, panels: Sequence[Axes]) -> None:
    named: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        named.update(zip(labels, handles, strict=True))
    figure.legend(
        list(named.values()), list(named), loc="outside lower center", ncols=3, fontsize=9
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
