"""What an operator may change, read once from `RIACHO_*` variables at start-up.

Settings are values. Components (stores, clocks, identifiers) are arguments of the assembly in
`service/app.py` and never appear here, so tests swap them without touching the environment.
"""

from pathlib import Path
from typing import Final

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from service import durations

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="RIACHO_", frozen=True, extra="ignore")

    data: Path = Path("riacho-data")
    """Where the embedded default keeps everything, unless the next two say otherwise."""

    zones: str = ""
    """`a=s3://bucket/prefix,b=file:///dir`, or names alone: directories under `data`."""

    metadata: str = ""
    """`dynamodb://table`, `sqlite:///file` or `memory://`; default: SQLite under `data`."""

    advertised_url: str = ""
    """How clients reach this gateway; shown by /v1/cluster."""

    batch_bytes_max: PositiveInt = 8 * MIB
    """Flush at this size. Larger objects cost fewer requests but take longer to write."""

    linger_min_ms: NonNegativeFloat = 0
    """Arrivals wait at least this long for company, also when nothing is in the air. It adds to
    every latency and divides the bill: at 250 a gateway writes four objects a second at most."""

    linger_max_ms: PositiveFloat = 100
    """While a flush is in the air, arrivals wait for it at most this long. Shorter means
    lower latency and more requests to pay for; at low load nothing waits in any case."""

    flights_max: PositiveInt = 4
    """So many flushes are written at once at most."""

    table_batch_bytes_max: int | None = Field(default=None, ge=0, le=64 * KIB)
    """A flush of one lane with at most so many bytes goes into the metadata table, and to the zones
    when the index rolls: quicker, and cheaper up to some kilobytes. 0: never; None: as is best for
    the table."""

    held_bytes_max: PositiveInt = 64 * MIB
    """Refuse produce requests beyond this, so that overload is an answer and not a crash."""

    request_bytes_max: PositiveInt = 16 * MIB
    """Largest body, as it is sent. Part of the public API: raise it, never lower it."""

    decompressed_bytes_max: PositiveInt = 32 * MIB
    """Largest body after gzip or zstd."""

    request_records_max: PositiveInt = 100_000

    fetch_bytes_default: PositiveInt = 4 * MIB
    fetch_bytes_max: PositiveInt = 64 * MIB
    fetch_held_bytes_max: PositiveInt = 64 * MIB
    """Records on their way to readers, about. Beyond half of it responses become smaller."""

    fetch_records_default: PositiveInt = 10_000
    fetch_records_max: PositiveInt = 100_000
    fetch_partitions_max: PositiveInt = 1_000
    wait_ms_max: PositiveInt = 60_000
    """Longest a fetch may wait for records. Proxies like to hang up after a minute."""

    answer_bytes_max: NonNegativeInt = 0
    """Where a host gathers each answer and refuses larger ones: records that do not fit are left
    for the next request, and a tail ends as soon as it has something to say. 0: any size."""

    answer_s_max: NonNegativeFloat = 0
    """A request is answered after this long in any case; waits are cut to stay below. 0: never."""

    freezes: bool = False
    """Whether the host lets this process stand still between answers, as Lambda does: then each
    answer waits for what its request has begun."""

    sse_heartbeat_s: PositiveFloat = 10

    head_poll_ms: PositiveFloat = 50
    """How often waiting fetches look for commits of other gateways. Each look is one read of
    the table per lane that is waited for."""

    slice_cache_bytes: PositiveInt = 64 * MIB
    index_cache_bytes: PositiveInt = 32 * MIB

    presign_expires_s: PositiveInt = 900

    gateway_heartbeat_s: NonNegativeFloat = 10
    """How often this gateway says that it lives; 0: never."""

    group_upkeep_s: NonNegativeFloat = 30
    """How often this gateway ends sessions that no member's call has met; 0: never."""

    producer_id_expiration_ms: PositiveInt = 86_400_000
    """An idempotent producer that writes nothing to a partition for so long is forgotten there."""

    offsets_retention_minutes: PositiveInt = 10_080
    """Offsets of a group without members are forgotten after this long: Kafka's 7 days."""

    controller_interval_s: NonNegativeFloat = 5
    """How often this gateway does what the controller does, if it is, or tries to be it; 0:
    never."""

    controller_lease_s: PositiveFloat = 15
    """A controller that was not heard of for this long is replaced."""

    controller_probe_timeout_s: PositiveFloat = 5
    controller_probe_failures_max: PositiveInt = 2
    """A zone that fails so many probes in a row, or takes too long for them, is offline."""

    controller_scan_s: PositiveFloat = 30
    """How often the controller looks at all lanes though no zone has changed."""

    controller_step_s: PositiveFloat = 5
    """How long the controller copies at a time. Zones are not probed meanwhile."""

    controller_resync_bytes_per_s: PositiveInt = 64 * MIB
    controller_resync_copies: PositiveInt = 4
    """How fast a zone that is behind is filled: bytes a second, and objects at once."""

    controller_verify_every_s: NonNegativeFloat = 86_400
    """How often the controller verifies that every zone in sync holds what the index names, and
    copies what one of them lacks; 0: never. A pass asks each zone for the size of each object."""

    controller_verify_calls: PositiveInt = 200
    """At most about so many such calls with each tick of the controller."""

    controller_gateway_expiry_s: PositiveFloat = 300
    """The item of a gateway that says nothing for this long is removed."""

    maintain_every: str = ""
    """How long after the end of one maintenance `riacho serve` begins the next, like 5m; empty:
    never. Retention, compaction and sweep, in a process of its own."""

    log_level: str = "info"
    log_format: str = Field(default="auto", pattern="^(auto|text|json)$")
    """`auto`: text on a terminal, JSON elsewhere."""

    @field_validator("maintain_every")
    @classmethod
    def _is_duration(cls, text: str) -> str:
        if text and durations.seconds(text) <= 0:
            raise ValueError("must be longer than nothing; leave it out for never")
        return text

    @property
    def maintain_every_s(self) -> float | None:
        return durations.seconds(self.maintain_every) if self.maintain_every else None
