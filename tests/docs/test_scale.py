"""The cost tables are those that the models print; a row of each is counted again."""

import pytest

from benchmarks import at_rest, comparison, cost_model, modes
from benchmarks.compaction_cost import compacted
from benchmarks.cost_model import GIB, KIB, Deployment, produce
from benchmarks.list_prices import PRICES, SERVICES, gib_per_month, s3_storage
from service.settings import Settings
from storage.head.head import INLINE_BYTES_MAX
from tests.docs.markdown import ROOT, table

SCALE = ROOT / "docs/scale.md"


@pytest.mark.anyio
@pytest.mark.parametrize("partitions", [1, 64])
async def test_a_flush_costs_what_the_table_says(partitions: int) -> None:
    rows = table(SCALE, "### Produce, per GiB, by size of the objects")
    [row] = [row for row in rows if row[:2] == [str(partitions), "512 KiB"]]
    puts, index_puts, writes, units, usd = (float(cell.replace(",", "")) for cell in row[2:])
    deployment = Deployment()
    cost = await produce(deployment, 512 * KIB, partitions)
    await deployment.gateway.aclose()
    scale = GIB / (512 * KIB)
    assert cost.segment_puts * scale == puts
    assert cost.index_puts * scale == pytest.approx(index_puts, rel=0.3)
    assert cost.writes * scale == pytest.approx(writes, rel=0.3)
    assert cost.write_units / cost.writes == pytest.approx(units, rel=0.2)
    assert cost.usd * scale == pytest.approx(usd, rel=0.2)


@pytest.mark.anyio
@pytest.mark.parametrize(("partitions", "policy"), [(1, "merge"), (1, "by key"), (64, "merge")])
async def test_compaction_costs_what_the_table_says(partitions: int, policy: str) -> None:
    rows = table(SCALE, "## Compaction and sweep")
    [row] = [row for row in rows if row[:3] == [str(partitions), "512 KiB", policy]]
    gets, puts, index, writes, usd = (float(cell.replace(",", "")) for cell in row[3:])
    chosen = "delete" if policy == "merge" else "compact"
    cost = await compacted(512 * KIB, partitions, policy=chosen)
    scale = GIB / cost.size_bytes
    assert cost.gets * scale == pytest.approx(gets, rel=0.1)
    assert cost.file_puts * scale == pytest.approx(puts, rel=0.1)
    assert (cost.index_gets + cost.index_puts) * scale == pytest.approx(index, rel=0.3)
    assert cost.writes * scale == pytest.approx(writes, rel=0.3)
    assert cost.usd * scale == pytest.approx(usd, rel=0.2)


def test_assumptions_are_those_of_the_model() -> None:
    text = SCALE.read_text()
    assert f"| S3 PUT | ${cost_model.PUT_USD * 1e6:.0f} per million |" in text
    assert f"| S3 GET | ${cost_model.GET_USD * 1e6:.2f} per million |" in text
    assert f"${cost_model.WRITE_UNIT_USD * 1e6:.3f} per million units of 1 KB" in text
    assert f"${cost_model.READ_UNIT_USD * 1e6:.3f} per million units of 4 KB" in text
    assert f"| **{INLINE_BYTES_MAX:,}** |" in text
    assert f"| **{Settings().linger_max_ms:g}** |" in text


def number(cell: str) -> float:
    return float(cell.strip("*").replace(",", ""))


def test_prices_have_their_dates() -> None:
    rows = table(SCALE, "## List prices")
    prices = [[name, str(price), price.as_of, price.found] for name, price in PRICES.items()]
    assert rows == prices


@pytest.mark.parametrize("name", SERVICES)
def test_other_services_cost_what_the_prices_say(name: str) -> None:
    [row] = [row for row in table(SCALE, "## Against others") if row[0] == name]
    for rate, month, each in zip(comparison.RATES, row[1::2], row[2::2], strict=True):
        usd = SERVICES[name](rate)
        assert number(month) == round(usd)
        assert number(each) == round(usd / gib_per_month(rate), 3)


@pytest.mark.parametrize(("call_bytes", "place"), [(KIB, "table"), (64 * KIB, "bucket")])
def test_functions_cost_what_the_tables_say(call_bytes: int, place: str) -> None:
    size = comparison.size_text(call_bytes)
    [row] = [row for row in table(SCALE, "## Functions") if row[:2] == [size, place]]
    puts, writes, units, _, ms, _, *money = (number(cell) for cell in row[2:])
    limit = comparison.TABLE_BATCH_BYTES_MAX if place == "table" else 0
    load = comparison.function_load(call_bytes, calls_max=400)
    used = modes.functions(load, table_batch_bytes_max=limit)
    bill = comparison.functions_bill(used).times(1e6 / used.produces)
    each = used.produces
    assert (used.segment_puts + used.index_puts) / each == pytest.approx(puts, rel=0.1, abs=0.05)
    assert used.writes / each == pytest.approx(writes, rel=0.3)
    assert used.write_units / each == pytest.approx(units, rel=0.3)
    assert used.produce_s / each * 1000 == pytest.approx(ms, rel=0.2)
    # Of these only the first has computing in it, which takes longer on a busy machine.
    assert [bill.objects, bill.table] == pytest.approx(money[1:3], rel=0.3, abs=0.2)

    [requests] = [r for r in table(SCALE, "### Requests, per GiB") if r[0].endswith(f"of {size}")]
    calls, _, segments, _, gets, attempts, _ = (number(cell) for cell in requests[1:])
    gib = used.per_gib()
    assert gib.produces == pytest.approx(calls)
    assert [gib.segment_puts, gib.gets, gib.writes] == pytest.approx(
        [segments, gets, attempts], rel=0.3, abs=calls / 20
    )

    rows = table(SCALE, "## Against others")
    [month] = [row for row in rows if row[0] == f"functions, calls of {size}"]
    for rate, cell in zip(comparison.RATES, month[1::2], strict=True):
        stated = (number(cell) - s3_storage(rate)) / gib_per_month(rate)
        assert stated == pytest.approx(money[3] / 1e6 / call_bytes * GIB, rel=0.02)


def test_containers_cost_what_the_table_says() -> None:
    [row] = [row for row in table(SCALE, "## Containers") if row[:2] == ["0", "10 MB/s"]]
    count, puts_per_s, _, _, fargate, objects, writes, total, _ = (
        number(cell) for cell in (row[2], *row[4:])
    )
    used = modes.containers(comparison.container_load(10, calls_max=800), int(count))
    bill = comparison.containers_month(int(count), used, 10)
    puts = used.per_gib().segment_puts + used.per_gib().index_puts
    assert puts * gib_per_month(10) / cost_model.MONTH_S == pytest.approx(puts_per_s, rel=0.2)
    assert bill.compute == pytest.approx(fargate, abs=1)
    assert [bill.objects, bill.table] == pytest.approx([objects, writes], rel=0.2)
    assert fargate + objects + writes == pytest.approx(total, abs=2)


def test_rest_costs_what_the_table_says() -> None:
    stated = {name: number(cell) for name, cell in table(SCALE, "## At rest")}
    counted = {name: number(cell) for name, cell in at_rest.rows()}
    assert stated == pytest.approx(counted, rel=0.3, abs=0.02)
