"""Where a gateway listens, whether callers must say who they are, and whether TLS is on.

Closed by default: open to everybody only where nobody but this machine can call. Whatever
contradicts that, or cannot be used, is an `InvalidConfig` with a sentence that says what to do.
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from service.security.tls.files import TlsFiles, certificate_of, complaint, context_of
from storage.errors import InvalidConfig

ON: Final = "on"
OFF: Final = "off"

FIRST_KEY: Final = "riacho keys create --super --principal User:root"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    host: str = "127.0.0.1"
    port: int = 8080
    security: str = OFF
    tls: TlsFiles | None = None
    kafka: str = ""
    """Where Kafka's clients connect, as RIACHO_KAFKA has it."""
    insecure: bool = False
    warnings: tuple[str, ...] = field(default=())
    """What the operator should know."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self.tls is None else 'https'}://{host}:{self.port}"


def is_local(host: str) -> bool:
    """Whether only this machine can reach `host`: loopback, or the path of a socket."""
    if host.startswith(("/", "unix:")):
        return True
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def security_of(
    host: str, security: str = "", *, insecure: bool = False, option: str = "--host"
) -> str:
    """Return whether callers must show a credential, "on" or "off".

    Raises `InvalidConfig` where "off" would open the gateway to others and nobody insists.
    """
    if security not in ("", ON, OFF):
        raise InvalidConfig(f"--security is {security!r}; it can be on or off")
    if security == ON or is_local(host):
        return security or OFF
    if insecure:
        return OFF
    if security == OFF:
        raise InvalidConfig(
            f"--security off with {option} {host}: whoever reaches this port could read, write and"
            " delete everything. Leave --security off out and make a key on this machine with"
            f" `{FIRST_KEY}`; or listen on 127.0.0.1 only; or insist with --insecure"
        )
    return ON


def listening(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    security: str = "",
    insecure: bool = False,
    tls: TlsFiles | None = None,
    now_ms: int = 0,
    kafka: str = "",
    kafka_host: str | None = None,
    warnings: Sequence[str] = (),
) -> Listening:
    """Return how to listen; a `port` of 0 becomes a free one. Raises `InvalidConfig`.

    `kafka_host` is that of `kafka`; None: nothing listens for Kafka's clients. What one address
    needs holds for both. `warnings` are told, too.
    """
    decided = security_of(host, security, insecure=insecure)
    others = [] if is_local(host) else [host]
    if kafka_host is not None:
        if security_of(kafka_host, security, insecure=insecure, option="--kafka") == ON:
            decided = ON
        others += [] if is_local(kafka_host) or kafka_host in others else [kafka_host]
    told = list(warnings)
    told += [
        f"security is off and {other} is not loopback: whoever reaches this port may read,"
        " write and delete everything"
        for other in others
        if decided == OFF
    ]
    if decided == ON and tls is None and others:
        told.append(
            "no TLS: credentials and records travel in the clear, unless something in front ends"
            " TLS; --tls-cert and --tls-key turn it on"
        )
    if tls is not None:
        context_of(tls)
        if wrong := complaint(certificate_of(tls), now_ms / 1000):
            told.append(f"the certificate in {tls.cert} {wrong}: clients will refuse it")
    return Listening(
        host=host,
        port=port or _free_port(host),
        security=decided,
        tls=tls,
        kafka=kafka,
        insecure=insecure,
        warnings=tuple(told),
    )


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
