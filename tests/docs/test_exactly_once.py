"""docs/exactly-once.md says what happens: its answers, its programs, and what a crash does."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from riacho import Admin, Consumer, Producer
from service.routes.transactions import KEY_CHARS_MAX
from service.transactions import room, state, transactions, upkeep
from storage.head.producers import REMEMBERED_MAX
from storage.stores.metadata import TRANSACT_OPS_MAX
from tests.docs.markdown import ROOT, blocks, table
from tests.docs.running import environment, run, shell
from tests.docs.test_examples import command
from tests.docs.transcripts import comparable, transcripts
from tests.gateway import GatewayProcess, start_gateway
from tests.storage.helpers.lossy_proxy import Fault, LossyProxy

DOCUMENT = ROOT / "docs/exactly-once.md"
PAYMENTS = 40
DIES_AFTER = 13
POLLED = 10


@pytest.fixture
def payments(tmp_path: Path) -> Iterator[GatewayProcess]:
    """A gateway with payments to copy."""
    with start_gateway(tmp_path) as started:
        with Admin(started.url) as admin:
            admin.create_topic("payments", partitions=3)
        with Producer(started.url) as producer:
            for amount in range(PAYMENTS):
                producer.send("payments", {"amount": amount}, key=f"customer-{amount}")
        yield started


def dies_and_is_started_again(name: str, gateway: GatewayProcess, folder: Path) -> Counter[int]:
    """Return how often each payment was written."""
    program = command("python", name)
    died = subprocess.run(
        [*program, str(DIES_AFTER)], env=environment(gateway), cwd=folder, timeout=60, check=False
    )
    assert died.returncode == 1
    run(program, gateway, folder)
    seen: Counter[int] = Counter()
    with Consumer(gateway.url, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(name.replace("_", "-"))
        while records := consumer.poll(timeout_ms=500):
            values = [record.json() for record in records]
            seen.update(v["cents"] // 100 if "cents" in v else v["amount"] for v in values)
    return seen


def promised(row: int) -> int:
    """Return how many records the document says are written."""
    return int(table(DOCUMENT, "## Three delivery semantics")[row][2].split()[0])


@pytest.mark.slow
def test_at_most_once_loses_and_doubles_nothing(payments: GatewayProcess, tmp_path: Path) -> None:
    seen = dies_and_is_started_again("at_most_once", payments, tmp_path)
    assert set(seen.values()) == {1}
    assert len(seen) == promised(0) == PAYMENTS - (2 * POLLED - DIES_AFTER)


@pytest.mark.slow
def test_at_least_once_doubles_and_loses_nothing(payments: GatewayProcess, tmp_path: Path) -> None:
    seen = dies_and_is_started_again("at_least_once", payments, tmp_path)
    assert seen.keys() == set(range(PAYMENTS))
    assert seen.total() == promised(1) == PAYMENTS + DIES_AFTER - POLLED


@pytest.mark.slow
def test_exactly_once_does_neither(payments: GatewayProcess, tmp_path: Path) -> None:
    seen = dies_and_is_started_again("exactly_once", payments, tmp_path)
    assert seen == Counter(range(PAYMENTS))
    assert seen.total() == promised(2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "name", "path", "lines", "written"),
    [
        ("javascript", "produce", "/v1/atomic", 0, 3),
        ("go", "produce", "/v1/atomic", 0, 3),
        ("python", "produce", "/records", 0, 3),
        ("javascript", "idempotent", "/records", 25, 25),
    ],
)
def test_programs_whose_replies_are_lost_write_once(
    payments: GatewayProcess, language: str, name: str, path: str, lines: int, written: int
) -> None:
    text = "".join(f"{number}\n" for number in range(lines))

    async def produce() -> int:
        async with LossyProxy(payments.url) as proxy:
            fault = Fault(path, times=2, lose_reply=True)
            proxy.faults.append(fault)
            process = await asyncio.create_subprocess_exec(
                *command(language, name),
                env={**environment(payments), "RIACHO_URL": proxy.url},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            )
            await process.communicate(text.encode())
            assert process.returncode == 0
            return fault.times

    with Admin(payments.url) as admin:
        before = sum(one.high_watermark for one in admin.partitions("payments"))
        assert asyncio.run(produce()) == 0
        after = sum(one.high_watermark for one in admin.partitions("payments"))
    assert after - before == written


def test_every_answer_is_what_a_gateway_says_and_the_program_works(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    for each in transcripts(DOCUMENT):
        kind = each.answer.info
        printed = shell(each.commands.text, gateway)
        assert comparable(printed, kind) == comparable(each.answer.text, kind), each.commands
    [program] = [b.text for b in blocks(DOCUMENT, "python") if 'group_id="billing"' in b.text]
    assert run([sys.executable, "-c", program], gateway, tmp_path).endswith("records copied\n")


def test_numbers_are_those_of_the_code() -> None:
    limits = dict(table(DOCUMENT, "## Limits"))
    day_ms = 86_400_000
    expected = {
        "batches remembered": REMEMBERED_MAX,
        "`timeout_ms`": f"1 to {transactions.TIMEOUT_MS_MAX:,}, default "
        f"{transactions.TIMEOUT_MS_DEFAULT:,}",
        "items that one commit changes": TRANSACT_OPS_MAX,
        "lanes that a transaction": room.LANES_MAX,
        "list of staged requests": f"{room.ITEM_BYTES_MAX // 1024} KiB",
        "ends of transactions": state.ENDS_KEPT,
        "an unused transactional id": f"{upkeep.TRANSACTIONAL_ID_EXPIRATION_MS // day_ms} days",
        "an `Idempotency-Key`": f"1 to {KEY_CHARS_MAX} printable",
    }
    for what, number in expected.items():
        [shown] = [cell for name, cell in limits.items() if name.startswith(what)]
        assert shown.startswith(str(number)), what
