"""All maintenance jobs, in an order in which each one leaves work for the next.

retention   hide records beyond the limits of age and size
compact     rewrite what is left
sweep       remove the objects that are not referenced any more
"""

from collections.abc import Awaitable, Callable

from service.jobs.compact import compact
from service.jobs.retention import retention
from service.jobs.sweep import Unsafe, sweep
from service.jobs.work import Outcome, Work
from storage.errors import RiachoError
from storage.leases import LeaseLost


async def maintain(work: Work, *, spark: bool | None = None) -> Outcome:
    """Run all steps, once. A failed step does not stop the next."""
    steps: dict[str, Callable[[], Awaitable[Outcome]]] = {
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
            outcomes[name] = Outcome(ok=True, document=document, lines=[f"left out: {error}"])
        except RiachoError as error:
            document = {"ok": False, "error": f"{error.code}: {error}"}
            outcomes[name] = Outcome(ok=False, document=document, lines=[f"failed: {error}"])
    ok = all(each.ok for each in outcomes.values())
    return Outcome(
        ok=ok,
        document={"ok": ok, **{name: each.document for name, each in outcomes.items()}},
        lines=[f"{name}: {line}" for name, each in outcomes.items() for line in each.lines],
    )
