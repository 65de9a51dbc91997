"""The cost tables are those that the cost model prints; two rows are counted again."""

import pytest

from benchmarks import cost_model
from benchmarks.compaction_cost import compacted
from benchmarks.cost_model import GIB, KIB, Deployment, produce
from service.settings import Settings
from storage.head import INLINE_BYTES_MAX
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
