"""All maintenance jobs, in an order in which each one leaves work for the next.

retention   hide records beyond the limits of age and size
compact     rewrite what is left
sweep       remove the objects that are not referenced any more
"""

from collections.abc import Awaitable, Callable

from service.jobs.compact import compact
from service.jobs.retention import retention
from service.jobs.sweep.sweep import Unsafe, sweep
from service.jobs.work import JobContext, JobOutcome
from storage.errors import RiachoError
from storage.leases import LeaseLost


async def maintain(work: JobContext, *, spark: bool | None = None) -> JobOutcome:
    """Run all steps, once. A failed step does not stop the next."""
    steps: dict[str, Callable[[], Awaitable[JobOutcome]]] = {
        "retention": lambda: retention(work),
        "compact": lambda: compact(work),
        "sweep": lambda: sweep(work, spark=spark),
    }
    outcomes = {}
    for name, step in steps.items():
        try:
            outcomes[name] = await step()
        except LeaseLost:
            raise
        except Unsafe as error:
            # There is no topic yet, so there is nothing to sweep. A manual sweep refuses this.
            document = {"ok": True, "skipped": str(error)}
            outcomes[name] = JobOutcome(ok=True, document=document, lines=[f"left out: {error}"])
        except RiachoError as error:
            document = {"ok": False, "error": f"{error.code}: {error}"}
            outcomes[name] = JobOutcome(ok=False, document=document, lines=[f"failed: {error}"])
    ok = all(each.ok for each in outcomes.values())
    return JobOutcome(
        ok=ok,
        document={"ok": ok, **{name: each.document for name, each in outcomes.items()}},
        lines=[f"{name}: {line}" for name, each in outcomes.items() for line in each.lines],
    )
