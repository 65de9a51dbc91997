"""Flame graphs of a gateway under load: where does its time go?

    python -m benchmarks.profile [produce-json|produce-arrow|fetch-arrow|delays ...]
        [--seconds 8] [--into docs/profiles]

py-spy looks at the gateway 250 times a second without stopping it, and only while it holds
Python's lock. What waits without it, as a flush of the disk does, is not in the picture.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import free_port
from benchmarks.peers.peer import values_of
from benchmarks.peers.riacho import Riacho, RiachoArrow, RiachoJson, start_gateway, stop_gateway

INTO = Path(__file__).parents[1] / "docs" / "profiles"
SAMPLES_PER_S = 250
WARM_S = 1.0
DELAYS_PER_S = 700
TOPIC = "profiled"

_TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')


def produce(peer: Riacho, size: int, batch: int, in_flight: int, seconds: float) -> None:
    peer.produce(TOPIC, values_of(size), batch, in_flight, seconds)


def fetch(peer: Riacho, size: int, seconds: float) -> None:
    values, give_up_s = values_of(size), time.monotonic() + seconds
    filled = peer.produce(TOPIC, values, 1000, 4, WARM_S).records
    while time.monotonic() < give_up_s:
        peer.fetch(TOPIC, filled, 10_000)


def delays(peer: Riacho, seconds: float) -> None:
    peer.delays(TOPIC, values_of(100)[0], DELAYS_PER_S, seconds)


LOADS: dict[str, tuple[type[Riacho], Callable[[Riacho, float], None]]] = {
    "produce-json": (RiachoJson, lambda peer, seconds: produce(peer, 100, 1000, 4, seconds)),
    "produce-arrow": (RiachoArrow, lambda peer, seconds: produce(peer, 1024, 1000, 4, seconds)),
    "fetch-arrow": (RiachoArrow, lambda peer, seconds: fetch(peer, 1024, seconds)),
    "delays": (RiachoJson, delays),
}


def profiled(name: str, seconds: float, into: Path) -> Path:
    """Draw where the time of a gateway goes under the load `name`; return the file."""
    maker, load = LOADS[name]
    into.mkdir(parents=True, exist_ok=True)
    path = into / f"{name}.svg"
    with tempfile.TemporaryDirectory(prefix="riacho-profile-") as folder:
        peer = maker()
        port = free_port()
        process = start_gateway(Path(folder), port)
        try:
            peer.join(process, port)
            peer.make(TOPIC)
            load(peer, WARM_S)
            loading = threading.Thread(target=load, args=(peer, seconds + WARM_S))
            loading.start()
            subprocess.run(
                [
                    *(str(Path(sys.executable).with_name("py-spy")), "record", "--nonblocking"),
                    *("--gil", "--rate", str(SAMPLES_PER_S), "--duration", str(int(seconds))),
                    *("--format", "flamegraph", "--output", str(path), "--pid", str(process.pid)),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            loading.join()
        finally:
            stop_gateway(process)
    # The title must say what the picture shows, not how and where it was made.
    text = path.read_text()
    path.write_text(_TITLE.sub(rf"\g<1>a gateway, {name}", text, count=1))
    return path


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.profile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("loads", nargs="*", metavar="load", help=f"of {', '.join(LOADS)}; or all")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--into", type=Path, default=INTO)
    given = parser.parse_args(arguments)
    if unknown := set(given.loads) - set(LOADS):
        parser.error(f"no load is called {', '.join(unknown)}; there are {', '.join(LOADS)}")
    for name in given.loads or LOADS:
        print(profiled(name, given.seconds, given.into), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
