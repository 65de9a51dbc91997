"""Bodies of Connect's calls, as Kafka's clients send them."""

from typing import Any

import msgspec

ConfigBody = dict[str, str | int | float | bool | None]
"""A configuration; what is not text becomes it."""


class NewConnectorBody(msgspec.Struct, forbid_unknown_fields=True):
    """A connector to create.

    As in Kafka, nothing else may be beside it: after a slip in `initial_state`, what is to wait
    would run.
    """

    config: ConfigBody
    name: str | None = None
    initial_state: str | None = None


class ConnectorOffsetBody(msgspec.Struct):
    """How far a partition was read."""

    partition: dict[str, Any] | None = None
    offset: dict[str, Any] | None = None


class ConnectorOffsetsBody(msgspec.Struct):
    """Offsets to set; an offset that is null is removed."""

    offsets: list[ConnectorOffsetBody] | None = None


class LevelOfLogBody(msgspec.Struct):
    """What a logger writes from now on."""

    level: str


class ConnectProblem(msgspec.Struct):
    """An error of a call of Connect."""

    error_code: int
    message: str
