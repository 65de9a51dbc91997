"""Where small flushes go when nobody says: into a SQLite file that is beside the only directory."""

from pathlib import Path

import pytest

from service.groups.classic.coordinator import limits_of
from service.process.stores import (
    INITIAL_REBALANCE_DELAY_MS,
    SQLITE_BATCH_BYTES_MAX,
    with_rebalance_delay,
    with_small_batches,
)
from service.settings import Settings
from tests.gateway import start_gateway
from tests.integration.processes import Api


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, SQLITE_BATCH_BYTES_MAX),
        ({"zones": "a"}, SQLITE_BATCH_BYTES_MAX),
        ({"zones": "a=/data/a", "metadata": "sqlite:///data/table"}, SQLITE_BATCH_BYTES_MAX),
        ({"table_batch_bytes_max": 0}, 0),
        ({"table_batch_bytes_max": 4096}, 4096),
        ({"zones": "a,b,c"}, 0),
        ({"zones": "a=s3://bucket"}, 0),
        ({"zones": "a=memory://"}, 0),
        ({"metadata": "memory://"}, 0),
        ({"metadata": "dynamodb://table"}, 0),
        ({"metadata": "dynamodb://table", "table_batch_bytes_max": 4096}, 4096),
    ],
)
def test_only_one_directory_beside_sqlite_has_them_by_itself(
    given: dict[str, object], limit: int
) -> None:
    settings = with_small_batches(Settings(**given))  # type: ignore[arg-type]

    assert settings.table_batch_bytes_max == limit


@pytest.mark.parametrize(
    ("given", "delay_ms"),
    [
        ({}, 0),
        ({"zones": "a=s3://bucket"}, INITIAL_REBALANCE_DELAY_MS),
        ({"group_initial_rebalance_delay_ms": 7}, 7),
    ],
)
def test_only_there_a_group_waits_for_nobody(given: dict[str, object], delay_ms: int) -> None:
    settings = with_rebalance_delay(Settings(**given))  # type: ignore[arg-type]

    assert settings.group_initial_rebalance_delay_ms == delay_ms
    assert limits_of(settings).initial_delay_ms == delay_ms


def test_an_embedded_gateway_makes_a_file_of_what_is_large_alone(tmp_path: Path) -> None:
    def segments() -> list[Path]:
        return [path for path in (tmp_path / "data" / "zones").rglob("hot/**/*") if path.is_file()]

    with start_gateway(tmp_path) as gateway, Api(gateway.url) as api:
        topic = api.topic(1)
        for number in range(20):
            api.produce(topic, [{"value": f"small {number}"}])
        assert segments() == []

        large = [{"value": f"{number:0100}{number * 7919:0100}"} for number in range(2000)]
        api.produce(topic, large)
        assert len(segments()) == 1
        values = [record["value"] for record in api.read_all(topic)]

    assert values == [f"small {number}" for number in range(20)] + [r["value"] for r in large]
