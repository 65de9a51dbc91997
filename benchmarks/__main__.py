"""All benchmarks, one after the other: `make bench`, or `make bench ARGS='http lanes'`."""

import importlib
import subprocess
import sys

NAMES = (
    "side_by_side",
    "kafka_door",
    "kafka_transactions",
    "kafka_batches",
    "codec",
    "kafka_codec",
    "schemas",
    "schema_validation",
    "http",
    "cpu",
    "fan_out",
    "polls",
    "slow_store",
    "small_produce",
    "writers",
    "cold_start",
    "lanes",
    "index_growth",
    "growth",
    "groups",
    "exactly_once",
    "encryption",
    "replication",
    "compaction",
    "typed_columns",
    "spark_source",
    "overload",
    "bombs",
    "security",
    "connect",
    "connect_cdc",
)


def main(names: list[str]) -> int:
    for name in names or NAMES:
        if name not in NAMES:
            print(f"there is no benchmark {name!r}; known are {', '.join(NAMES)}")
            return 2
        about = importlib.import_module(f"benchmarks.{name}").__doc__ or name
        print(f"\n== {name}: {about.strip().splitlines()[0]}", flush=True)
        # Each in a separate process, so that one does not slow the next.
        if subprocess.call([sys.executable, "-m", f"benchmarks.{name}"]) != 0:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
