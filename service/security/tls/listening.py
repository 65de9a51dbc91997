"""Where a gateway listens, whether callers must say who they are, and whether TLS is on.

Closed by default: open to everybody only where nobody but this machine can call. Whatever
contradicts that, or cannot be used, is an `InvalidConfig` with a sentence that says what to do.
"""

import socket
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


def security_of(host: str, security: str = "", *, insecure: bool = False) -> str:
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
            f"--security off with --host {host}: whoever reaches this port could read, write and"
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
) -> Listening:
    """Return how to listen; a `port` of 0 becomes a free one. Raises `InvalidConfig`."""
    decided = security_of(host, security, insecure=insecure)
    warnings = []
    if decided == OFF and not is_local(host):
        warnings.append(
            f"security is off and {host} is not loopback: whoever reaches this port may read,"
            " write and delete everything"
        )
    if decided == ON and tls is None and not is_local(host):
        warnings.append(
            "no TLS: credentials and records travel in the clear, unless something in front ends"
            " TLS; --tls-cert and --tls-key turn it on"
        )
    if tls is not None:
        context_of(tls)
        if wrong := complaint(certificate_of(tls), now_ms / 1000):
            warnings.append(f"the certificate in {tls.cert} {wrong}: clients will refuse it")
    return Listening(
        host=host,
        port=port or _free_port(host),
        security=decided,
        tls=tls,
        warnings=tuple(warnings),
    )


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
