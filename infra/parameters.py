"""The parameters of a deployment, read from the CDK context (`-c name=value`, or cdk.json).

Values arrive as text from the command line and as JSON from a file; both are accepted. Unknown
names are refused, because a misspelt one would otherwise be ignored silently.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, Self

Auth = Literal["iam", "jwt", "none"]
Architecture = Literal["x86_64", "arm64"]

ROOT: Final = Path(__file__).resolve().parent.parent

ZONES_MAX: Final = 8
MEMORY_MB_MIN, MEMORY_MB_MAX = 512, 10_240
LOG_DAYS: Final = (1, 3, 5, 7, 14, 30, 60, 90, 180, 365, 400, 731, 1827, 3653)
"""Log retention in days: a selection of the values that CloudWatch accepts."""


class WrongParameter(ValueError):
    """A parameter that is unknown, or whose value makes no sense."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """One deployment."""

    name: str = "Riacho"
    """Name of the stack. Two names are two deployments in one account."""

    zones: tuple[str, ...] = ("a",)
    """Names of zones, each with a bucket. They are stored with the data: add, never rename."""

    auth: Auth = "iam"
    """Whom the doors let in: signed requests, tokens (HTTP API only; the URL stays signed), or all.
    Riacho itself still wants to know who calls, unless `security` is off."""

    security: bool = True
    """Whether callers need rights in Riacho: ACLs, keys, or to be super users."""

    super_users: tuple[str, ...] = ()
    """Principals who may do everything: ARNs of users and roles, or `User:…`."""

    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_principal_claim: str = "sub"
    """The claim of a token that names its principal."""

    memory_mb: int = 1769
    """Memory of the gateway. Lambda gives a whole core from 1769 MB, and less below."""

    concurrency: int = 0
    """Maximum concurrent gateways, reserved from the account's limit; 0: the account's limit."""

    table_batch_bytes_max: int = 4096
    """Batches up to this size go to the table first."""

    log_days: int = 30
    kms: bool = True
    """A KMS key of the deployment for buckets and table, instead of the keys of AWS."""

    topic_keys: tuple[str, ...] = ()
    """ARNs of the KMS keys that topics may name in `encryption.kek`."""

    keep: bool = True
    """Whether buckets and table outlive the stack."""

    streaming: bool = False
    """Whether the Function URL streams: `riacho serve` behind the Lambda Web Adapter."""

    adapter_layer: int = 26
    """Version of the adapter's layer."""

    architecture: Architecture = "x86_64"
    python: str = "3.13"

    controller_minutes: int = 1
    maintain_minutes: int = 60
    """Interval of retention, compaction and sweep; 0: not scheduled."""

    connect_minutes: int = 0
    """How often the function that runs connectors is called; 0: there is none."""

    libraries: tuple[str, ...] = ()
    """What the functions have besides: `schemas`, or libraries of connectors, like `asyncpg`."""

    emr_release: str = "emr-spark-8.1.0"
    emr_python: str = "3.11"
    emr_cores_max: int = 16

    containers: int = 0
    """Tasks of a Fargate service beside the functions; 0: no service, no network."""

    linger_min_ms: int = 0
    """How long containers collect records before they write."""

    certificate: str = ""
    """ARN of a certificate: the load balancer then serves HTTPS, reachable from the internet."""

    alarms: bool = True
    alarm_email: str = ""

    function_package: Path = ROOT / "build" / "lambda"
    job_package: Path = ROOT / "build" / "riacho-job.tgz"

    def __post_init__(self) -> None:
        _check(re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,40}", self.name), "name", self.name)
        _check(0 < len(set(self.zones)) == len(self.zones) <= ZONES_MAX, "zones", self.zones)
        for zone in self.zones:
            _check(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,19}", zone), "zones", zone)
        _check(self.auth in ("iam", "jwt", "none"), "auth", self.auth)
        for name in self.super_users:
            _check(re.fullmatch(r"(User:|arn:)[^;,\x00-\x1f]+", name), "super_users", name)
        for arn in self.topic_keys:
            _check(
                re.fullmatch(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d+:key/[\w-]+", arn),
                "topic_keys",
                arn,
            )
        if self.auth == "jwt" or self.jwt_issuer:
            _check(self.jwt_issuer.startswith("https://"), "jwt_issuer", self.jwt_issuer)
            _check(self.jwt_audience, "jwt_audience", self.jwt_audience)
            _check(self.jwt_principal_claim, "jwt_principal_claim", self.jwt_principal_claim)
        _check(MEMORY_MB_MIN <= self.memory_mb <= MEMORY_MB_MAX, "memory_mb", self.memory_mb)
        _check(self.log_days in LOG_DAYS, "log_days", self.log_days)
        _check(self.architecture in ("x86_64", "arm64"), "architecture", self.architecture)
        # Older runtimes are on Amazon Linux 2, whose C library is too old for Arrow's wheels.
        _check(re.fullmatch(r"3\.1[2-9]", self.python), "python", self.python)
        _check(re.fullmatch(r"3\.1[1-9]", self.emr_python), "emr_python", self.emr_python)
        _check(0 <= self.table_batch_bytes_max <= 65_536, "table_batch_bytes_max", "")
        for name in ("controller_minutes", "emr_cores_max"):
            _check(getattr(self, name) > 0, name, getattr(self, name))
        for name in (
            "containers",
            "concurrency",
            "linger_min_ms",
            "maintain_minutes",
            "connect_minutes",
        ):
            _check(getattr(self, name) >= 0, name, getattr(self, name))

    @property
    def security_environment(self) -> dict[str, str]:
        """The variables that tell a gateway whom it may let do what."""
        if not self.security:
            return {"RIACHO_SECURITY": "off", "RIACHO_INSECURE": "1"}
        found = {"RIACHO_SECURITY": "on"}
        if self.super_users:
            names = (f"User:{n}" if n.startswith("arn:") else n for n in self.super_users)
            found["RIACHO_SUPER_USERS"] = ";".join(names)
        if self.jwt_issuer:
            found["RIACHO_JWT_ISSUER"] = self.jwt_issuer
            found["RIACHO_JWT_AUDIENCE"] = self.jwt_audience
            found["RIACHO_JWT_PRINCIPAL_CLAIM"] = self.jwt_principal_claim
        return found

    @classmethod
    def from_context(cls, context: Callable[[str], Any]) -> Self:
        """Return the parameters from `context` (as `node.try_get_context`), else their defaults.

        Raises `WrongParameter`.
        """
        return cls.of({name: context(name) for name in names()})

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return parameters from text or values; `None` is the default."""
        unknown = sorted(given.keys() - names())
        if unknown:
            raise WrongParameter(f"there is no parameter {', '.join(unknown)}")
        defaults = {each.name: each.default for each in fields(cls)}
        read = {
            name: _read(name, value, defaults[name])
            for name, value in given.items()
            if value is not None
        }
        return cls(**read)


def names() -> frozenset[str]:
    return frozenset(each.name for each in fields(Parameters))


def _check(holds: object, name: str, value: object) -> None:
    if not holds:
        raise WrongParameter(f"{name} cannot be {value!r}")


def _read(name: str, value: Any, default: Any) -> Any:
    try:
        match default:
            case bool():
                return _truth(value)
            case int():
                return int(value)
            case tuple():
                return tuple(value.split(",")) if isinstance(value, str) else tuple(value)
            case Path():
                return Path(value)
            case _:
                return str(value)
    except (KeyError, TypeError, ValueError) as error:
        raise WrongParameter(f"{name} cannot be {value!r}") from error


def _truth(value: Any) -> bool:
    return {"true": True, "false": False, "on": True, "off": False}[str(value).lower()]
