"""One request of a Kafka client, as a handler sees it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from service.security.caller import ANYONE, Caller


@dataclass(slots=True, kw_only=True)
class Peer:
    """The client at the other end of a connection."""

    host: str = ""
    port: int = 0
    software: str = ""
    """What ApiVersions said of the client's library: its name and version."""
    listener: str = "PLAINTEXT"
    """The security protocol of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    is_gone: bool = False
    """Whether the connection has ended: nobody waits for a reply any more."""


@dataclass(slots=True, kw_only=True)
class KafkaCall:
    """What a handler knows of a request besides its fields."""

    key: int
    version: int
    client_id: str = ""
    caller: Caller = ANYONE
    peer: Peer = field(default_factory=Peer)
    when_sent: list[Callable[[], None]] = field(default_factory=list)
    """What the connection calls, once, when the reply has left this process or never will: to
    release what counts as being sent. The bytes of the request need no such care: the connection
    holds them in `gateway.admission` until the handler returns."""


Handler: TypeAlias = Callable[[KafkaCall, Any], Awaitable[Any]]
"""Takes a call and its decoded request; returns the response, or None if there is none to send
(a produce request with acks=0)."""
