"""What a cold start of the gateway waits for: importing the handler, and the first calls.

    python -m benchmarks.cold_start

Each row is the best of several fresh processes; `import` is `import lambdas.gateway` with S3 and
DynamoDB, without the start of Python itself. CPU time is what a busy machine changes least.
"""

import json
import os
import subprocess
import sys

from benchmarks.harness import show

RUNS = 5

ENVIRONMENT = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "RIACHO_ZONES": "a=s3://bucket",
    "RIACHO_METADATA": "dynamodb://table",
}

CODE = """
import json, time
wall, cpu = time.perf_counter(), time.process_time()
import {module}
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""

MODULES = (
    "asyncio",
    "pyarrow.compute",
    "service.settings",
    "starlette.requests",
    "aiobotocore.session",
    "fastapi",
    "lambdas.gateway",
)


def took_ms(module: str) -> tuple[float, float]:
    """Return the best wall and CPU time of importing a module in a fresh process."""
    found = []
    for _ in range(RUNS):
        done = subprocess.run(
            [sys.executable, "-c", CODE.format(module=module)],
            env={**os.environ, **ENVIRONMENT},
            stdout=subprocess.PIPE,
            check=True,
        )
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return min(wall for wall, _ in found) * 1000, min(cpu for _, cpu in found) * 1000


def main() -> None:
    rows = []
    for module in MODULES:
        wall, cpu = took_ms(module)
        rows.append([module, f"{wall:.0f}", f"{cpu:.0f}"])
    show("Import in a fresh process, by itself", ["module", "wall ms", "CPU ms"], rows)


if __name__ == "__main__":
    main()
