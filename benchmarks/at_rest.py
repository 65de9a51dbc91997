"""The cost of an idle deployment of functions.

    python -m benchmarks.at_rest

Calls of the controller's function are counted on stores in memory. What CloudWatch and EMR take is
computed from what the CDK app sets up.
"""

import io
import time
from dataclasses import dataclass, replace

from benchmarks.cost_model import MONTH_S, PUT_S, TABLE_S, CountedObjects, CountedTable
from benchmarks.harness import show
from benchmarks.list_prices import usd
from benchmarks.modes import GET_S
from benchmarks.virtual_time import BEGAN_MS
from service.serverless import controller as scheduled
from service.serverless.metrics import MetricLog
from service.serverless.settings import controller_settings
from service.settings import Settings
from service.world.clock import World, real_world
from storage.zones.zones import Zones

TICKS = 30
TICK_EVERY_S = 60
MAINTAIN_EVERY_S = 3600
SMALL_GB = 0.5
ALARMS, METRICS = 10, 5

EMR_CORES, EMR_GB = 1, 4
"""A driver, as the CDK app asks for it; executors come when there is something to do."""
EMR_S = 120
"""How long a run takes that finds nothing to do: a guess. The least that is billed is a minute."""


@dataclass(frozen=True)
class Tick:
    """Requests and time of one call of the controller, on average."""

    puts: float
    gets: float
    reads: float
    read_units: float
    writes: float
    write_units: float
    cpu_s: float

    @property
    def seconds(self) -> float:
        """Return how long it takes at most: one request after the other."""
        table_s = (self.reads + self.writes) * TABLE_S
        return self.puts * PUT_S + self.gets * GET_S + table_s + self.cpu_s

    @property
    def usd(self) -> float:
        stores = self.puts * usd("S3 PUT, LIST") + self.gets * usd("S3 GET")
        units = self.write_units * usd("DynamoDB write") + self.read_units * usd("DynamoDB read")
        return stores + units + self.seconds * SMALL_GB * usd("Lambda x86") + usd("Lambda request")


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def tick(zones: str) -> Tick:
    """Return what a tick takes with one zone for each letter."""
    passed_s = 0.0
    world = replace(
        real_world(),
        now_ms=lambda: BEGAN_MS + int(passed_s * 1000),
        monotonic_s=lambda: passed_s,
    )
    stores = {name: CountedObjects(keep=True) for name in zones}
    table = CountedTable(world.new_version)
    opens = scheduled.open_table, scheduled.open_zones

    def open_table(_settings: Settings, _world: World) -> CountedTable:
        return table

    def open_zones(_settings: Settings) -> Zones:
        return Zones(stores)

    scheduled.open_table, scheduled.open_zones = open_table, open_zones
    try:
        metrics = MetricLog(world.now_ms, io.StringIO())
        controller = scheduled.ScheduledController(controller_settings(), world, metrics)
    finally:
        scheduled.open_table, scheduled.open_zones = opens
    context = _Context()
    controller({}, context)
    before = _counts(table, stores)
    for _ in range(TICKS):
        passed_s += TICK_EVERY_S
        controller({}, context)
    after = _counts(table, stores)
    controller.close()
    return Tick(*((b - a) / TICKS for a, b in zip(before, after, strict=True)))


def _counts(table: CountedTable, zones: dict[str, CountedObjects]) -> list[float]:
    puts = sum(each.segment_puts + each.index_puts for each in zones.values())
    gets = sum(each.segment_gets + each.index_gets for each in zones.values())
    counted = (table.reads, table.read_units, table.writes, table.write_units)
    return [puts, gets, *counted, time.process_time()]


def emr_month() -> float:
    hourly = EMR_CORES * usd("EMR vCPU") + EMR_GB * usd("EMR memory")
    return MONTH_S / MAINTAIN_EVERY_S * EMR_S / 3600 * hourly


def rows() -> list[list[str]]:
    ticks = MONTH_S / TICK_EVERY_S
    months = {
        "the controller's tick, every minute, one zone": ticks * tick("a").usd,
        "the same, three zones": ticks * tick("abc").usd,
        "maintenance on EMR, every hour, nothing to do": emr_month(),
        f"{ALARMS} alarms": ALARMS * usd("CloudWatch alarm"),
        f"{METRICS} metrics": METRICS * usd("CloudWatch metric"),
    }
    return [[name, f"{month:.2f}"] for name, month in months.items()]


def main() -> None:
    show("At rest, per month", ["", "$"], rows())


if __name__ == "__main__":
    main()
