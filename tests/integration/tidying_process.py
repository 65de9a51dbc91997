"""Gateways and jobs for whom time runs fast, since a test cannot wait for an hour.

    python -m tests.integration.tidying_process serve --port 8080 --data DIR
    python -m tests.integration.tidying_process each '[["fsck"], ["compact", "orders", "--force"]]'
    python -m tests.integration.tidying_process tidy orders payments

What takes minutes elsewhere takes seconds: a write may take `FLIGHT_S` from its object to its
commit, and the lease of maintenance lasts `LEASE_S`. The rest is the command line as it is.

`tidy` runs jobs one after the other until it is killed, and says how they fare in lines of JSON.
`each` runs commands one after the other, and prints a list of what they print. One of them may be
`list`: all objects there are, and those that something refers to.
"""

import asyncio
import io
import itertools
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final

from storage.lanes import rolls

FLIGHT_S: Final = 12.0
MIN_AGE_S: Final = 25
"""Twice as much as a flight, since an attempt that began in time takes time, too."""

LEASE_S: Final = 4.0

# Before anybody else takes it from there.
rolls.FLIGHT_MAX_S = FLIGHT_S  # type: ignore[misc]

from riacho.cli.main import cli  # noqa: E402
from service.jobs import lease  # noqa: E402
from service.jobs.lease import HeldLease  # noqa: E402
from service.jobs.stores import opened  # noqa: E402
from service.settings import Settings  # noqa: E402
from service.transactions import atomic, staging  # noqa: E402
from storage.lanes import commits  # noqa: E402
from storage.lanes import lane as lanes  # noqa: E402
from storage.resync import inventory  # noqa: E402
from storage.topics.all_heads import every_head  # noqa: E402

for module in (atomic, commits, lanes, staging):
    assert module.FLIGHT_MAX_S == FLIGHT_S

_held: Final = lease.held


@asynccontextmanager
async def _shortly_held(*args: Any, **options: Any) -> AsyncIterator[HeldLease]:
    async with _held(*args, **options, lease_s=LEASE_S) as held:
        _say("holds")
        try:
            yield held
        finally:
            _say("lets go")


lease.held = _shortly_held


def _say(event: str, **fields: object) -> None:
    # Not where commands print their results.
    assert sys.__stderr__ is not None
    sys.__stderr__.write(json.dumps({"event": event, **fields}) + "\n")
    sys.__stderr__.flush()


def tidy(topics: Sequence[str]) -> None:
    """Compact, hide and sweep for ever."""
    compact = ["compact", "--no-spark", *topics]
    sweep = ["sweep", "--no-spark", "--unsafe", "--min-age", f"{MIN_AGE_S}s"]
    for job in itertools.cycle([compact, ["retention"], sweep]):
        err = io.StringIO()
        with redirect_stderr(err):
            code, document = _run([*job, "--wait", "600"])
        _say("ended", job=job[0], code=code, told=document, error=err.getvalue()[-2000:])


def each(commands: Sequence[Sequence[str]]) -> list[Any]:
    """Run commands to their end; all must succeed."""
    documents = []
    for command in commands:
        code, document = (0, asyncio.run(objects())) if command == ["list"] else _run(command)
        if code:
            sys.exit(f"{command}: {code}")
        documents.append(document)
    return documents


def _run(command: Sequence[str]) -> tuple[int, Any]:
    """Return the exit code and the document that a command prints."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli([*command, "-o", "json"], standalone_mode=False)
    text = out.getvalue()
    return code or 0, json.loads(text) if text else {}


async def objects() -> dict[str, list[str]]:
    """Return the names of all objects, and of those that heads and indexes refer to."""
    listed: set[str] = set()
    referenced: set[str] = set()
    async with opened(Settings()) as stores:
        for name in stores.zones.names:
            async for batch in stores.zones.store(name).list(""):
                listed |= {info.key for info in batch}
        async for head in every_head(stores.metadata):
            async for shelf in inventory.walk(stores.zones, head):
                referenced |= {reference.key for reference in shelf.references}
    return {"listed": sorted(listed), "referenced": sorted(referenced)}


def main() -> None:
    match sys.argv[1:]:
        case ["tidy", *topics]:
            tidy(topics)
        case ["each", commands]:
            sys.stdout.write(json.dumps(each(json.loads(commands))))
        case _:
            cli(prog_name="riacho")


if __name__ == "__main__":
    main()
