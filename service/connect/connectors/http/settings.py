"""What the HTTP connectors do, as their configurations say."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.connect.connectors.http.bodies import BodyForm
from service.connect.connectors.http.requests import RequestSettings


@dataclass(frozen=True, kw_only=True)
class HttpSinkSettings:
    requests: RequestSettings
    form: BodyForm
    batch_max: int
    is_batch: bool
    """Bodies have a frame, even around one record."""
    on_null: str
    """`ignore`, `log`, `delete` or `fail`."""
    on_error: str
    """`fail` (report), `log` or `ignore`."""


@dataclass(frozen=True, kw_only=True)
class HttpSourceSettings:
    requests: RequestSettings
    body: str
    topic: str
    interval_s: float
    list_pointer: Sequence[str]
    value_pointer: Sequence[str]
    key_pointer: Sequence[str] | None
    offset_pointer: Sequence[str] | None
    offset_initial: str
