"""Reading partitions as offsets and values."""

from service.log.gateway import FetchResult, Gateway, Position, Wait
from storage.reading.reader import Budget
from tests.simulation.kafka.contents import name_of, of_arrow
from tests.simulation.kafka.witness import Witness

PATIENCE_MAX = 15.0

EVERYTHING = Budget(records_max=10_000, bytes_max=10**7)

Values = tuple[tuple[int, str], ...]


class Patience:
    """How much longer a reader pauses after it has found nothing new several times in a row.

    Reads of unchanged data are a third of all work, and show the least.
    """

    def __init__(self) -> None:
        self.factor = 1.0

    def saw(self, is_news: bool) -> None:
        self.factor = 1.0 if is_news else min(PATIENCE_MAX, self.factor * 1.5)


async def fetch(
    gateway: Gateway,
    topic: str,
    partition: int,
    offset: int,
    budget: Budget,
    wait_s: float = 0,
    witness: Witness | None = None,
) -> tuple[Values, FetchResult]:
    """Return names of records; `witness` hears all that they are."""
    position = Position(offset=offset)
    result = await gateway.fetch(topic, partition, position, budget, Wait(max_wait_s=wait_s))
    values: list[tuple[int, str]] = []
    for offsets, batch in result.fetched.batches(budget.bytes_max):
        names = map(name_of, batch.column(2).to_pylist())
        values += zip(offsets, names, strict=True)
        if witness is not None:
            witness.reads("http", partition, of_arrow(offsets, batch))
    return tuple(values), result


async def read_all(
    gateway: Gateway, topic: str, partition: int, start: int = 0, witness: Witness | None = None
) -> list[tuple[int, str]]:
    """Return all records."""
    records: list[tuple[int, str]] = []
    while True:
        offset = records[-1][0] + 1 if records else start
        values, _ = await fetch(gateway, topic, partition, offset, EVERYTHING, witness=witness)
        if not values:
            return records
        records += values
