"""List prices in us-east-1, each with its date and source, and the cost of services.

None of the vendors' own pages was reachable; most prices come from quotations of them. Check them
before relying on these figures.
"""

import math
from dataclasses import dataclass

from benchmarks.cost_model import GIB, MONTH_S

MB = 10**6
HOURS = MONTH_S / 3600
DAY_S = 86_400
TIB_GIB = 1024


@dataclass(frozen=True)
class Price:
    usd: float
    per: str
    as_of: str
    found: str

    def __str__(self) -> str:
        if self.usd < 1e-3:
            return f"${self.usd * 1e6:.6g} per million {self.per}"
        return f"${self.usd:.6g} per {self.per}"


QUOTED = "AWS price list, quoted in a public repository"
PRICES = {
    "S3 PUT, LIST": Price(5e-6, "requests", "2026", "from memory; the same for years"),
    "S3 GET": Price(0.4e-6, "requests", "2026", "from memory; the same for years"),
    "S3 storage": Price(0.023, "GB-month", "2026", "from memory; the same for years"),
    "DynamoDB write": Price(0.625e-6, "units of 1 KB", "2026-09-05", QUOTED),
    "DynamoDB read": Price(0.125e-6, "units of 4 KB", "2026-09-05", QUOTED),
    "DynamoDB storage": Price(0.25, "GB-month", "2026-09-05", QUOTED),
    "DynamoDB recovery": Price(0.20, "GB-month", "2026", "from memory"),
    "Lambda x86": Price(16.6667e-6, "GB-seconds", "2026", "guides to it, two agree"),
    "Lambda request": Price(0.20e-6, "requests", "2026", "guides to it, two agree"),
    "HTTP API": Price(1.00e-6, "requests of 512 KB", "2026", "public repositories; to 300 million"),
    "HTTP API, more": Price(0.90e-6, "requests of 512 KB", "2026", "public repositories"),
    "Fargate vCPU": Price(0.04048, "hour", "2026", "public repositories, several agree"),
    "Fargate memory": Price(0.004445, "GB-hour", "2026", "public repositories, several agree"),
    "Load balancer": Price(0.0225, "hour", "2026", "public repositories"),
    "Load balancer, unit": Price(0.008, "hour, for 1 GB/h", "2026", "from memory"),
    "EMR vCPU": Price(0.052624, "hour", "2026-10", "public repositories, several agree"),
    "EMR memory": Price(0.0057785, "GB-hour", "2026-10", "public repositories, several agree"),
    "CloudWatch alarm": Price(0.10, "month", "2026", "from memory"),
    "CloudWatch metric": Price(0.30, "month", "2026", "from memory"),
    "MSK kafka.m7g.large": Price(0.204, "hour", "2026-09-11", QUOTED),
    "MSK express.m7g.large": Price(0.408, "hour", "2026-09-11", QUOTED),
    "MSK Express, written": Price(0.01, "GB", "2026", "a public cost tool"),
    "MSK storage": Price(0.10, "GB-month", "2026", "a public cost tool"),
    "MSK Serverless": Price(0.75, "hour", "2026-09-11", QUOTED),
    "MSK Serverless, partition": Price(0.0015, "hour", "2026-09-11", QUOTED),
    "MSK Serverless, in": Price(0.10, "GB", "2026-09-11", QUOTED),
    "MSK Serverless, out": Price(0.05, "GB", "2026-09-11", QUOTED),
    "Kinesis shard": Price(0.015, "hour", "2026-09-11", QUOTED),
    "Kinesis PUT unit": Price(
        0.014e-6, "units of 25 KB", "2023-09-21", "trek10.com, and repositories"
    ),
    "Kinesis on demand": Price(0.04, "hour", "2023-09-21", "trek10.com, and repositories"),
    "Kinesis on demand, in": Price(0.08, "GB", "2026-09-11", QUOTED),
    "Kinesis on demand, out": Price(0.04, "GB", "2023-09-21", "trek10.com, and repositories"),
    "Kinesis advantage, in": Price(0.032, "GB", "2025-11", "public repositories, several agree"),
    "Kinesis advantage, out": Price(0.016, "GB", "2025-11", "public repositories, several agree"),
    "WarpStream cluster": Price(0.1725, "15 minutes", "2026-10-04", "$503 a month, quoted"),
    "WarpStream written": Price(0.01, "GiB, to 50 TiB", "2026", "a public repository, unverified"),
    "WarpStream written, more": Price(0.0075, "GiB", "2026", "a public repository, unverified"),
    "WarpStream stored": Price(0.01, "GiB-month", "2026", "a public repository, unverified"),
}

EXPRESS_MB_PER_S, STANDARD_MB_PER_S = 15.6, 10.0
"""What a large broker takes. AWS recommends the first, the second is a guideline of its tools."""
BROKERS_PER_ZONES = 3
REPLICAS = 3
PARTITIONS = 64
ADVANTAGE_MB_PER_S_MIN = 25
PUT_UNIT_BYTES = 25_000
WARPSTREAM_FIRST_GIB = 50 * TIB_GIB


def usd(name: str) -> float:
    return PRICES[name].usd


def gib_per_month(mb_per_s: float) -> float:
    return mb_per_s * MB * MONTH_S / GIB


def gib_kept(mb_per_s: float) -> float:
    """Return the stored GiB when records are kept for a day."""
    return mb_per_s * MB * DAY_S / GIB


def s3_storage(mb_per_s: float) -> float:
    return gib_kept(mb_per_s) * usd("S3 storage")


def _brokers(mb_per_s: float, each_mb_per_s: float) -> int:
    return BROKERS_PER_ZONES * math.ceil(mb_per_s / each_mb_per_s / BROKERS_PER_ZONES)


def msk_standard(mb_per_s: float) -> float:
    brokers = _brokers(mb_per_s, STANDARD_MB_PER_S)
    disks = gib_kept(mb_per_s) * REPLICAS * usd("MSK storage")
    return brokers * HOURS * usd("MSK kafka.m7g.large") + disks


def msk_express(mb_per_s: float) -> float:
    brokers = _brokers(mb_per_s, EXPRESS_MB_PER_S)
    written = gib_per_month(mb_per_s) * usd("MSK Express, written")
    stored = gib_kept(mb_per_s) * usd("MSK storage")
    return brokers * HOURS * usd("MSK express.m7g.large") + written + stored


def msk_serverless(mb_per_s: float) -> float:
    hourly = usd("MSK Serverless") + PARTITIONS * usd("MSK Serverless, partition")
    moved = usd("MSK Serverless, in") + usd("MSK Serverless, out")
    stored = gib_kept(mb_per_s) * usd("MSK storage")
    return hourly * HOURS + gib_per_month(mb_per_s) * moved + stored


def kinesis_on_demand(mb_per_s: float) -> float:
    moved = usd("Kinesis on demand, in") + usd("Kinesis on demand, out")
    return HOURS * usd("Kinesis on demand") + gib_per_month(mb_per_s) * moved


def kinesis_advantage(mb_per_s: float) -> float:
    billed = gib_per_month(max(mb_per_s, ADVANTAGE_MB_PER_S_MIN))
    return billed * (usd("Kinesis advantage, in") + usd("Kinesis advantage, out"))


def kinesis_provisioned(mb_per_s: float) -> float:
    units = mb_per_s * MB / PUT_UNIT_BYTES * MONTH_S
    return math.ceil(mb_per_s) * HOURS * usd("Kinesis shard") + units * usd("Kinesis PUT unit")


def warpstream(mb_per_s: float) -> float:
    """Return its own bill and the bucket's storage; machines and requests are extra."""
    written = gib_per_month(mb_per_s)
    first = min(written, WARPSTREAM_FIRST_GIB)
    return (
        HOURS * 4 * usd("WarpStream cluster")
        + first * usd("WarpStream written")
        + (written - first) * usd("WarpStream written, more")
        + gib_kept(mb_per_s) * usd("WarpStream stored")
        + s3_storage(mb_per_s)
    )


SERVICES = {
    "MSK, standard brokers": msk_standard,
    "MSK, Express brokers": msk_express,
    "MSK Serverless": msk_serverless,
    "Kinesis, provisioned": kinesis_provisioned,
    "Kinesis, on demand": kinesis_on_demand,
    "Kinesis, on demand, advantage": kinesis_advantage,
    "WarpStream, without its agents": warpstream,
}
