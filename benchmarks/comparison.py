"""Functions and containers by the month, against Kafka on MSK, Kinesis and WarpStream.

    python -m benchmarks.comparison

What Riacho takes is counted by `benchmarks.modes`; prices are those of `benchmarks.list_prices`.
Everywhere: records of 1 KiB that do not compress, a constant rate, one reader of everything, who
follows, and a day of storage.
"""

import math
from dataclasses import dataclass

from benchmarks import modes
from benchmarks.cost_model import GIB, KIB, MIB, MONTH_S
from benchmarks.harness import show
from benchmarks.list_prices import (
    DAY_S,
    HOURS,
    MB,
    PRICES,
    SERVICES,
    gib_per_month,
    s3_storage,
    usd,
)
from benchmarks.modes import Load, Usage

RATES = (1, 10, 100)
MEMORY_GB = 1769 / 1024
"""What the CDK app gives the function by default: with it, a whole core."""
HTTP_API_STEP = 512 * KIB
HTTP_API_FIRST = 300e6
TABLE_BATCH_BYTES_MAX = 4096

LANE_CALLS_PER_S = 10
LANES = 8
LANE_CALLS_BEFORE = 100
SMALL = (KIB, 3 * KIB)
CALLS = (KIB, 3 * KIB, 16 * KIB, 64 * KIB, 512 * KIB, 4 * MIB)

TASK_CORES, TASK_GB = 1, 2
TASKS_MIN = 2
TASK_MB_PER_S = 20
"""What makes a task 60 % busy, beyond which the service of the CDK app grows: a GiB in calls of
64 KiB, written and read, took 28 to 36 s of a core here."""
CONTAINER_PARTITIONS = 16
CONTAINER_CALL = 64 * KIB
CONTAINER_CALLS = 2500

LINGER_MS = 250
"""`RIACHO_LINGER_MIN_MS`, where the bill counts for more than latency."""

ONE_LANE_CALLS_PER_S = (10, 25, 50, 100, 150)

SWEEPS = HOURS
"""One an hour. It lists all objects, a thousand a request."""


@dataclass(frozen=True)
class Bill:
    """Dollars, for one GiB or for a month."""

    compute: float
    requests: float
    objects: float
    table: float

    @property
    def total(self) -> float:
        return self.compute + self.requests + self.objects + self.table

    def times(self, factor: float) -> "Bill":
        return Bill(*(each * factor for each in vars(self).values()))


def stores_bill(used: Usage) -> tuple[float, float]:
    """Return what S3 and DynamoDB cost, without storage."""
    puts = used.segment_puts + used.index_puts
    objects = puts * usd("S3 PUT, LIST") + used.gets * usd("S3 GET")
    table = used.write_units * usd("DynamoDB write") + used.read_units * usd("DynamoDB read")
    return objects + _swept(puts), table


def _swept(puts: float) -> float:
    """Return the price of finding what `puts` wrote in the sweeps of the day that it is kept."""
    return puts / 1000 * usd("S3 PUT, LIST") * SWEEPS * DAY_S / MONTH_S


def functions_bill(used: Usage) -> Bill:
    """Return what Lambda with a Function URL costs."""
    seconds = used.produce_s + used.fetch_s + used.cpu_s
    objects, table = stores_bill(used)
    return Bill(
        compute=seconds * MEMORY_GB * usd("Lambda x86"),
        requests=(used.produces + used.fetches) * usd("Lambda request"),
        objects=objects,
        table=table,
    )


def http_api(used: Usage, call_bytes: int, months_worth: float) -> float:
    """Return what an HTTP API adds to `months_worth` times `used`."""
    read_bytes = used.produced_bytes / max(1.0, used.fetches)
    steps = used.produces * math.ceil(call_bytes / HTTP_API_STEP)
    steps += used.fetches * math.ceil(read_bytes / HTTP_API_STEP)
    steps *= months_worth
    first = min(steps, HTTP_API_FIRST)
    return first * usd("HTTP API") + (steps - first) * usd("HTTP API, more")


def tasks(mb_per_s: float) -> int:
    """Return how many containers are not too busy."""
    return max(TASKS_MIN, math.ceil(mb_per_s / TASK_MB_PER_S))


def containers_month(count: int, used: Usage, mb_per_s: float) -> Bill:
    task = TASK_CORES * usd("Fargate vCPU") + TASK_GB * usd("Fargate memory")
    objects, table = stores_bill(used.per_gib())
    gib = gib_per_month(mb_per_s)
    return Bill(count * task * HOURS, 0, objects * gib + s3_storage(mb_per_s), table * gib)


def balancer_month(mb_per_s: float) -> float:
    """Return what a load balancer adds, which everything goes through twice."""
    gib_per_hour = 2 * gib_per_month(mb_per_s) / HOURS
    return HOURS * (usd("Load balancer") + gib_per_hour * usd("Load balancer, unit"))


def function_load(call_bytes: int, calls_max: int = modes.CALLS_MAX) -> Load:
    # An index page holds 80 calls and more, and large ones would fill the memory before.
    before = LANES * LANE_CALLS_BEFORE if call_bytes <= 64 * KIB else 0
    return Load(call_bytes, LANE_CALLS_PER_S * LANES, LANES, 1, calls_max, before)


def container_load(mb_per_s: float, calls_max: int = CONTAINER_CALLS) -> Load:
    calls_per_s = mb_per_s * MB / CONTAINER_CALL
    partitions = CONTAINER_PARTITIONS
    return Load(CONTAINER_CALL, calls_per_s, partitions, partitions, calls_max, calls_max // 4)


def counted_functions() -> dict[tuple[int, bool], Usage]:
    found = {}
    for call_bytes in CALLS:
        for in_table in (False, True) if call_bytes in SMALL else (False,):
            limit = TABLE_BATCH_BYTES_MAX if in_table else 0
            used = modes.functions(function_load(call_bytes), table_batch_bytes_max=limit)
            found[call_bytes, in_table] = used
    return found


def counted_containers(linger_min_ms: float) -> dict[int, tuple[int, Usage]]:
    """Return, for each rate, the number of containers and their requests."""
    found = {}
    for rate in RATES:
        load, count = container_load(rate), tasks(rate)
        found[rate] = count, modes.containers(load, count, linger_min_ms=linger_min_ms)
    return found


def size_text(size_bytes: float) -> str:
    unit, name = (MIB, "MiB") if size_bytes >= MIB else (KIB, "KiB")
    return f"{size_bytes / unit:.3g} {name}"


def functions_table(counted: dict[tuple[int, bool], Usage]) -> None:
    rows = []
    for (call_bytes, in_table), used in counted.items():
        each, bill = used.produces, functions_bill(used).times(1e6 / used.produces)
        api = http_api(used, call_bytes, 1e6 / each)
        rows.append(
            [
                size_text(call_bytes),
                "table" if in_table else "bucket",
                f"{(used.segment_puts + used.index_puts) / each:.2f}",
                f"{used.writes / each:.1f}",
                f"{used.write_units / each:.1f}",
                f"{used.gets / each:.2f}",
                f"{used.produce_s / each * 1000:.0f}",
                f"{used.cpu_s / each * 1000:.1f}",
                f"{bill.compute + bill.requests:.2f}",
                f"{bill.objects:.2f}",
                f"{bill.table:.2f}",
                f"{bill.total:.2f}",
                f"{api:.2f}",
                f"{functions_bill(used.per_gib()).total:.3f}",
            ]
        )
    show(
        "Functions, per million produce calls, each read once",
        [
            *("call", "to", "PUTs", "table writes", "units", "GETs", "ms", "CPU ms"),
            *("$ Lambda", "$ S3", "$ table", "$ all", "HTTP API adds", "$ / GiB"),
        ],
        rows,
    )


def _money(usd_per_month: float) -> str:
    return f"{usd_per_month:,.0f}"


def _row(name: str, months: list[float]) -> list[str]:
    row = [name]
    for rate, month in zip(RATES, months, strict=True):
        row += [_money(month), f"{month / gib_per_month(rate):.3f}"]
    return row


def months_table(
    functions: dict[tuple[int, bool], Usage],
    containers: dict[int, tuple[int, Usage]],
    lingering: dict[int, tuple[int, Usage]],
) -> None:
    rows = [
        _row(name, [containers_month(*counted[rate], rate).total for rate in RATES])
        for name, counted in (
            ("containers, calls of 64 KiB", containers),
            (f"the same, `RIACHO_LINGER_MIN_MS={LINGER_MS}`", lingering),
        )
    ]
    for call_bytes, in_table in ((4 * MIB, False), (512 * KIB, False), (64 * KIB, False)):
        rows.append(_functions_row(functions[call_bytes, in_table], call_bytes))
    rows.append(_functions_row(functions[KIB, True], KIB))
    rows += [_row(name, [cost(rate) for rate in RATES]) for name, cost in SERVICES.items()]
    show(
        "$ a month, and $ / GiB",
        ["", *(text for rate in RATES for text in (f"{rate} MB/s", "$ / GiB"))],
        rows,
    )


def requests_rows(
    functions: dict[tuple[int, bool], Usage], containers: dict[int, tuple[int, Usage]]
) -> list[list[str]]:
    named = [(f"containers, {rate} MB/s", used) for rate, (_, used) in containers.items()]
    named += [
        (f"functions, calls of {size_text(call_bytes)}", used)
        for (call_bytes, in_table), used in functions.items()
        if in_table or call_bytes not in SMALL
    ]
    rows = []
    for name, used in named:
        gib = used.per_gib()
        counts = [gib.produces, gib.fetches, gib.segment_puts, gib.index_puts, gib.gets]
        rows.append([name, *(f"{count:,.0f}" for count in (*counts, gib.writes, gib.read_units))])
    return rows


def requests_table(
    functions: dict[tuple[int, bool], Usage], containers: dict[int, tuple[int, Usage]]
) -> None:
    show(
        "Requests, per GiB",
        ["", "calls", "fetches", "PUTs", "index PUTs", "GETs", "table writes", "read units"],
        requests_rows(functions, containers),
    )


def _functions_row(used: Usage, call_bytes: int) -> list[str]:
    each = functions_bill(used.per_gib()).total
    months = [each * gib_per_month(rate) + s3_storage(rate) for rate in RATES]
    return _row(f"functions, calls of {size_text(call_bytes)}", months)


def containers_table(
    containers: dict[int, tuple[int, Usage]], lingering: dict[int, tuple[int, Usage]]
) -> None:
    rows = []
    for linger_ms, rate, (count, used) in (
        (linger_ms, rate, found)
        for linger_ms, counted in ((0, containers), (LINGER_MS, lingering))
        for rate, found in counted.items()
    ):
        bill, gib = containers_month(count, used, rate), used.per_gib()
        puts = (gib.segment_puts + gib.index_puts) * rate * MB / GIB
        rows.append(
            [
                f"{linger_ms}",
                *(
                    f"{rate} MB/s",
                    f"{count}",
                    size_text(GIB / gib.segment_puts),
                    f"{puts:.0f}",
                ),
                f"{used.produce_s / used.produces * 1000:.0f}",
                f"{gib.cpu_s:.1f}",
                *(_money(bill.compute), _money(bill.objects), _money(bill.table)),
                *(_money(bill.total), _money(balancer_month(rate))),
            ]
        )
    show(
        "Containers of 1 vCPU and 2 GB, calls of 64 KiB, per month",
        [
            *("linger", "rate", "containers", "object", "PUTs/s", "ms", "CPU s / GiB"),
            *("$ Fargate", "$ S3", "$ table", "$ all", "a balancer adds"),
        ],
        rows,
    )


def lane_table() -> None:
    """Print what happens as more functions write to one lane at once."""
    rows = []
    for call_bytes, limit in ((64 * KIB, 0), (KIB, TABLE_BATCH_BYTES_MAX)):
        for calls_per_s in ONE_LANE_CALLS_PER_S:
            load = Load(call_bytes, calls_per_s, 1, calls_max=600, calls_before=100)
            used = modes.functions(load, table_batch_bytes_max=limit)
            rows.append(
                [
                    *(size_text(call_bytes), "table" if limit else "bucket", f"{calls_per_s}"),
                    f"{used.writes / used.produces:.1f}",
                    f"{used.produce_s / used.produces * 1000:.0f}",
                    f"{used.refused / used.produces:.1%}",
                    f"{functions_bill(used).total * 1e6 / used.produces:.2f}",
                ]
            )
    show(
        "Functions that write to one lane",
        ["call", "to", "calls/s", "table writes a call", "ms", "refused", "$ per million"],
        rows,
    )


def prices_table() -> None:
    rows = [[name, str(price), price.as_of, price.found] for name, price in PRICES.items()]
    show("List prices", ["what", "price", "as of", "found in"], rows)


def main() -> None:
    prices_table()
    functions = counted_functions()
    functions_table(functions)
    containers, lingering = counted_containers(0), counted_containers(LINGER_MS)
    containers_table(containers, lingering)
    months_table(functions, containers, lingering)
    requests_table(functions, containers)
    lane_table()


if __name__ == "__main__":
    main()
