"""Settings of functions: defaults that differ from those of a long-running gateway.

Environment variables override these defaults.
"""

import os
from typing import Any, Final

from pydantic_settings import BaseSettings, SettingsConfigDict

from service.serverless.events import ANSWER_BYTES_MAX
from service.settings import MIB, Settings
from storage.errors import InvalidConfig

QUIET: Final[dict[str, Any]] = {
    "gateway_heartbeat_s": 0,
    "group_upkeep_s": 0,
    "controller_interval_s": 0,
}
"""No background tasks, because a function does not run between calls."""

GATEWAY: Final[dict[str, Any]] = {
    **QUIET,
    "freezes": True,
    "answer_bytes_max": ANSWER_BYTES_MAX,
    "answer_s_max": 28,  # API Gateway gives up after 29 s.
    "fetch_bytes_default": 4 * MIB,
    "fetch_bytes_max": 4 * MIB,
    "head_poll_ms": 100,
    "table_batch_bytes_max": 4096,
    "log_format": "json",
}


class AdapterSettings(BaseSettings):
    """What a process behind the Lambda Web Adapter is told, in `RIACHO_ADAPTER_*`."""

    model_config = SettingsConfigDict(env_prefix="RIACHO_ADAPTER_", frozen=True, extra="ignore")

    identity: bool = False
    """Whether the adapter's header says who calls. Only for a function whose URL or API has
    verified its callers, and whose process nobody but the adapter can reach."""


def gateway_settings() -> Settings:
    return _settings({**GATEWAY, "security": security()})


def security() -> str:
    """Return what `RIACHO_SECURITY` is in this process: in a function on, unless it says otherwise.

    Raises `InvalidConfig` if a function would let anybody do everything, and nobody insists on it.
    """
    is_function = "AWS_LAMBDA_FUNCTION_NAME" in os.environ
    given = os.environ.get("RIACHO_SECURITY", "").lower() or ("on" if is_function else "")
    if is_function and given == "off" and not _is_insecure():
        raise InvalidConfig(
            "RIACHO_SECURITY=off lets whoever reaches this function do everything: leave it out,"
            " and name those who may do everything in RIACHO_SUPER_USERS; or set RIACHO_INSECURE=1"
            " if other means protect the function"
        )
    return given


def _is_insecure() -> bool:
    return os.environ.get("RIACHO_INSECURE", "").lower() in {"1", "true", "t", "on", "yes", "y"}


def controller_settings() -> Settings:
    return _settings({**QUIET, "log_format": "json"})


def _settings(defaults: dict[str, Any]) -> Settings:
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        _check_stores()
    return Settings(
        **{
            name: value
            for name, value in defaults.items()
            if f"RIACHO_{name.upper()}" not in os.environ
        }
    )


def _check_stores() -> None:
    """Raise `InvalidConfig` if a local directory would be used: it is lost with the environment."""
    names = ("RIACHO_ZONES", "RIACHO_METADATA")
    missing = [name for name in names if not os.environ.get(name)]
    if missing and "RIACHO_DATA" not in os.environ:
        raise InvalidConfig(
            f"a function keeps nothing: {' and '.join(missing)} must say where records are, like"
            " RIACHO_ZONES=a=s3://bucket RIACHO_METADATA=dynamodb://table"
        )
