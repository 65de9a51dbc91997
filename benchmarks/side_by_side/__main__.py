"""The command line of `benchmarks.side_by_side`."""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.side_by_side import __doc__ as about
from benchmarks.side_by_side.latency import latency
from benchmarks.side_by_side.lineup import chosen
from benchmarks.side_by_side.run import Run, machine
from benchmarks.side_by_side.targets import targets
from benchmarks.side_by_side.throughput import fetch, partitions, produce
from service.process.freed_memory import keep_freed_memory

SECTIONS: dict[str, Callable[[Run], None]] = {
    "produce": produce,
    "fetch": fetch,
    "latency": latency,
    "partitions": partitions,
    "targets": targets,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.side_by_side",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="section", help="all, unless some are named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    parser.add_argument("--peers", default="", help="beside ours; all, unless some are named")
    parser.add_argument("--json", type=Path, help="append what is measured to this file")
    given = parser.parse_args(arguments)
    if unknown := set(given.sections) - set(SECTIONS):
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    try:
        entries = chosen([key for key in given.peers.split(",") if key])
    except ValueError as error:
        parser.error(str(error))
    keep_freed_memory()  # Of all clients, as they share this process.
    run = Run(given.rounds, given.seconds, entries, given.json)
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    began_s = time.monotonic()
    for name, section in SECTIONS.items():
        if not given.sections or name in given.sections:
            run.absent.clear()
            section(run)
    print(f"{(time.monotonic() - began_s) / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    # As an exception, so that the servers of all peers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(sys.argv[1:]))
