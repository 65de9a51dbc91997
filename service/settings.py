"""The settings of a gateway, read once from `RIACHO_*` variables at start-up.

Settings are values. Components (stores, clocks, identifiers) are arguments of the assembly in
`service/app.py` and never appear here, so tests swap them without touching the environment.
"""

from pathlib import Path
from typing import Final, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.world import durations

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="RIACHO_", frozen=True, extra="ignore")

    data: Path = Path("riacho-data")
    """Directory of the embedded stores; used unless `zones` and `metadata` name others."""

    zones: str = ""
    """`a=s3://bucket/prefix,b=file:///dir`, or names alone: directories under `data`."""

    metadata: str = ""
    """`dynamodb://table`, `sqlite:///file` or `memory://`; default: SQLite under `data`."""

    advertised_url: str = ""
    """The URL at which clients reach this gateway; shown by /v1/cluster."""

    batch_bytes_max: PositiveInt = 8 * MIB
    """Flush at this size. Larger objects cost fewer requests but take longer to write."""

    linger_min_ms: NonNegativeFloat = 0
    """Minimum wait before a flush, even if no other flush is being written. Adds to every latency
    and reduces the number of requests: at 250 a gateway writes at most four objects a second."""

    linger_max_ms: PositiveFloat = 100
    """Maximum wait for a flush that is being written. Shorter means lower latency and more
    requests to pay for; at low load records do not wait at all."""

    flights_max: PositiveInt = 4
    """Maximum number of concurrent flushes."""

    table_batch_bytes_max: int | None = Field(default=None, ge=0, le=64 * KIB)
    """Maximum size of a flush of one lane that is stored in the metadata table first and moved to
    the zones by the next roll: faster, and cheaper up to a few kilobytes. 0: never; None: depends
    on the stores (`service/process/stores.py`)."""

    kek_files: Path | None = None
    """Directory of key-encryption keys. A topic's `encryption.kek=file:<path>` may name the files
    below it, and no others; None: none."""

    held_bytes_max: PositiveInt = 64 * MIB
    """Refuse produce requests beyond this many bytes in memory, so that overload is a 503 and not
    a crash."""

    request_bytes_max: PositiveInt = 16 * MIB
    """Largest body as sent, before decompression. Part of the public API: raise it, never lower
    it."""

    decompressed_bytes_max: PositiveInt = 32 * MIB
    """Largest body after gzip or zstd."""

    request_records_max: PositiveInt = 100_000

    fetch_bytes_default: PositiveInt = 4 * MIB
    fetch_bytes_max: PositiveInt = 64 * MIB
    fetch_held_bytes_max: PositiveInt = 64 * MIB
    """Approximate limit for bytes being sent to readers. Above half of it responses get smaller."""

    fetch_records_default: PositiveInt = 10_000
    fetch_records_max: PositiveInt = 100_000
    fetch_partitions_max: PositiveInt = 1_000
    wait_ms_max: PositiveInt = 60_000
    """Longest wait of a fetch. Many proxies close a connection after a minute."""

    answer_bytes_max: NonNegativeInt = 0
    """Largest response that the host accepts, if it buffers responses (Lambda). Records that do not
    fit are left for the next request, and a tail ends with its first event. 0: any size."""

    answer_s_max: NonNegativeFloat = 0
    """Maximum duration of a request; longer waits are shortened to fit. 0: no limit."""

    freezes: bool = False
    """Whether the host suspends this process between requests, as Lambda does. Then each response
    waits for the tasks that its request has started."""

    sse_heartbeat_s: PositiveFloat = 10

    head_poll_ms: PositiveFloat = 50
    """How often waiting fetches look for commits of other gateways. Costs one read of the table per
    lane with a waiting fetch."""

    slice_cache_bytes: PositiveInt = 64 * MIB
    index_cache_bytes: PositiveInt = 32 * MIB

    presign_expires_s: PositiveInt = 900

    presign: Literal["ranges", "gateway"] = "ranges"
    """How clients that read stored records directly get them. `ranges`: by presigned URLs of single
    byte ranges, if the store is S3. `gateway`: through this gateway, for a store that speaks S3 and
    does not check the signed header `Range`."""

    gateway_heartbeat_s: NonNegativeFloat = 10
    """Interval at which this gateway updates its item in the table; 0: never."""

    group_upkeep_s: NonNegativeFloat = 30
    """Interval at which this gateway looks for expired group sessions, which calls of other members
    would otherwise end; 0: never."""

    group_min_session_timeout_ms: int = Field(default=6_000, ge=100, le=1_800_000)
    """Shortest session that a member of Kafka's classic group protocol may ask for."""

    group_max_session_timeout_ms: int = Field(default=1_800_000, ge=1_000, le=86_400_000)
    """Longest session that such a member may ask for."""

    group_initial_rebalance_delay_ms: int | None = Field(default=None, ge=0, le=600_000)
    """How long the first round of a classic group waits for more members, each time that one comes.
    None: depends on the stores (`service/process/stores.py`)."""

    group_consumer_session_timeout_ms: int = Field(default=45_000, ge=1_000, le=1_800_000)
    """Session of members of Kafka's consumer protocol (KIP-848), which do not choose their own."""

    group_consumer_heartbeat_interval_ms: int = Field(default=5_000, ge=100, le=600_000)
    """Interval at which these members send heartbeats. While one waits for partitions that others
    hold, it is told a fifth of it."""

    producer_id_expiration_ms: PositiveInt = 86_400_000
    """The state of an idempotent producer in a partition expires after this long without a
    write."""

    offsets_retention_minutes: PositiveInt = 10_080
    """Offsets of a group without members expire after this long: 7 days, as in Kafka."""

    controller_interval_s: NonNegativeFloat = 5
    """Interval at which this gateway tries to take the controller's lease or, as controller, does
    its work; 0: never."""

    controller_lease_s: PositiveFloat = 15
    """The controller's lease expires after this long without renewal; then another gateway takes
    it."""

    controller_probe_timeout_s: PositiveFloat = 5
    controller_probe_failures_max: PositiveInt = 2
    """A zone is offline after this many failed or timed-out probes in a row."""

    controller_scan_s: PositiveFloat = 30
    """Interval at which the controller reads all lanes, even if no zone has changed."""

    controller_step_s: PositiveFloat = 5
    """Maximum time spent copying per tick of the controller; zones are not probed meanwhile."""

    controller_resync_bytes_per_s: PositiveInt = 64 * MIB
    controller_resync_copies: PositiveInt = 4
    """Limits of re-sync: bytes per second, and concurrent copies."""

    controller_verify_every_s: NonNegativeFloat = 86_400
    """Interval at which the controller verifies that every in-sync zone holds all objects of the
    index, and copies missing ones; 0: never. A pass asks each zone for the size of each object."""

    controller_verify_calls: PositiveInt = 200
    """Approximate maximum of such calls per tick of the controller."""

    controller_gateway_expiry_s: PositiveFloat = 300
    """The item of a gateway is deleted after this long without an update."""

    security: str = Field(default="", pattern="^(on|off|)$")
    """Whether callers must show a credential, and may only do what ACLs allow. Empty: on, unless
    `riacho serve` listens on loopback only."""

    insecure: bool = False
    """Insist on `security=off` where others than this machine can reach the gateway."""

    super_users: str = ""
    """Principals that may do everything, separated by semicolons: `User:root;User:ops`."""

    ssl_principal_mapping_rules: str = "DEFAULT"
    """How the subject of a client certificate becomes a principal, as Kafka's setting of this name
    says it: `RULE:^CN=(.*?),.*$/$1/L,DEFAULT`."""

    maintain_every: str = ""
    """Pause between the end of one maintenance run of `riacho serve` and the next, like 5m; empty:
    no maintenance. A run is retention, compaction and sweep, in a separate process."""

    audit: str = Field(default="", pattern="^(on|off|file:.+)?$")
    """Where refusals and administrative changes are recorded, as a JSON line each: `on` is standard
    error, whatever `log_format` and `log_level` say, `file:/var/log/riacho-audit` a file; empty: on
    if security is on."""

    audit_topic: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,249}$")
    """A topic that gets the same lines as records, like _audit. It is created, with 30 days of
    retention, unless it is there. Empty: none."""

    logins_failed_max: PositiveInt = 10
    """Failed logins a minute with one key from one address. Then it is refused for the rest of the
    minute, even with the right secret unless that has succeeded from there within the last hour;
    other keys and other addresses are not."""

    logins_failed_per_peer_max: PositiveInt = 100
    """Failed logins a minute from one address, with whatever keys. Then credentials that have
    succeeded from there within the last hour go on, and others are refused for the rest of the
    minute. Behind a load balancer that hides addresses, all clients have the same one."""

    tails_per_principal_max: PositiveInt = 1_000
    """Open tails of one principal at this gateway; more are refused."""

    waits_per_principal_max: PositiveInt = 1_000
    """Fetches and polls of one principal that wait for records at this gateway; more are refused
    unless they do not wait."""

    secret_files: str = ""
    """Directories, with commas, below which `${file:…}` in settings and configurations may name a
    file; empty: any."""

    secret_env: str = ""
    """A pattern (RE2) that the name of a variable in `${env:…}` must match; empty: any."""

    connect: str = Field(default="", pattern="^(on|off|)$")
    """Whether this process sees to it that connectors run: `on` starts another one for them when
    there are some, or runs them itself if the stores are in memory. Empty: `riacho serve` does,
    others do not."""

    connect_files: Path | None = None
    """Directory of connectors: they read and write files below it, and nowhere else. None: there
    are no connectors of files."""

    connect_private_addresses: bool = False
    """Whether connectors of HTTP may reach addresses of private networks and of this machine."""

    jwt_issuer: str = ""
    """The identity provider whose tokens are accepted, `https://…`; empty: none."""

    jwt_audience: str = ""
    """Whom tokens must be for; several with commas."""

    jwt_jwks: str = ""
    """The URL or the file with the provider's keys. Empty: its own description says where."""

    jwt_algorithms: str = "RS256,ES256,EdDSA"

    jwt_principal_claim: str = Field(default="sub", min_length=1)
    """The claim that names the principal."""

    jwt_principal_mapping_rules: str = ""
    """Rules from that claim to the principal's name, as in `ssl.principal.mapping.rules`."""

    jwt_required_scope: str = ""
    """A scope that every token must have; empty: none."""

    jwt_clock_skew_s: float = Field(default=30, ge=0, le=60)
    """How much the clocks of the provider and of this gateway may differ."""

    jwt_ca_file: str = ""
    """The authorities that the provider's certificate may be of. Empty: the usual ones."""

    kafka: str = ""
    """`host:port` where Kafka's clients connect, port 0 for any free one; `off`: nowhere.
    `default`: 127.0.0.1:9092, or nowhere if that is taken; `riacho serve` says so unless told
    otherwise. Empty: nowhere."""

    kafka_advertised: str = ""
    """`host:port` that Kafka's clients are told to connect to; empty: what this gateway listens
    on, or the name of the machine if that is every address."""

    kafka_request_bytes_max: int = Field(default=100 * MIB, ge=MIB, le=1024 * MIB)
    """Largest request of a Kafka client that has said who it is; 512 KiB before that."""

    kafka_connections_max: PositiveInt = 10_000
    """Open connections of Kafka clients; more are refused."""

    kafka_connections_per_address_max: PositiveInt = 1_000
    """Open connections of Kafka clients of one address; more are refused."""

    kafka_idle_s: PositiveFloat = 600
    """A connection of a Kafka client without requests is closed after this long."""

    workers: PositiveInt = 1
    """Processes of `riacho serve`: they share the address for Kafka's clients."""

    kafka_zone: str = Field(default="", pattern="^[A-Za-z0-9._-]{0,249}$")
    """Where this gateway runs. Kafka's clients that name a zone (`client.id=etl,zone=a`) are led to
    brokers of theirs; empty: unknown."""

    kafka_leaders: Literal["lane", "one"] = "lane"
    """Who leads the partitions that a Kafka client asks for: `lane`: a broker for each lane, the
    same for all clients; `one`: one broker for all that a client does, which spares clients of
    many topics connections and makes several gateways write to each head."""

    kafka_auto_create: bool = True
    """Whether a topic that a Kafka client asks for and that does not exist is created, if the
    client allows it and the caller may."""

    kafka_num_partitions: PositiveInt = 1
    """Partitions of such a topic, and of one whose creator leaves their number open. As in Kafka,
    one keeps all records in order."""

    kafka_replication_factor: PositiveInt = 1
    """Zones that hold such a topic; all of them, if there are fewer."""

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
    def super_user_names(self) -> frozenset[str]:
        names = (name.strip() for name in self.super_users.split(";"))
        return frozenset(name for name in names if name)

    @property
    def maintain_every_s(self) -> float | None:
        return durations.seconds(self.maintain_every) if self.maintain_every else None
