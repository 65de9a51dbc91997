"""Where Kafka clients connect: the address that a gateway listens on, and the one it advertises.

    RIACHO_KAFKA    (empty)       127.0.0.1:9092 if `riacho serve` finds it free, else nothing
                    host:port     this one, or the gateway does not start; port 0 is any free one
                    off           nothing

A client connects to any gateway first, and then to the addresses that `Metadata` tells it. So the
advertised address must be one that the client can reach: an IPv4 address on loopback, because
librdkafka tries `::1` first for `localhost`, and the name of the machine for "all interfaces".
"""

import errno
import socket
from dataclasses import dataclass
from typing import Final

from storage.errors import InvalidConfig

DEFAULT: Final = "default"
OFF: Final = "off"
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 9092

PORT_MAX: Final = 65_535

OWN_PORTS_MAX: Final = 200
"""How many ports after the shared one a worker tries, to find one of its own."""

BACKLOG: Final = 1024
"""Connections that the system keeps until this process accepts them."""

_ANY: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - Compared, not listened on.


@dataclass(frozen=True, slots=True)
class HostPort:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_ADDRESS: Final = HostPort(DEFAULT_HOST, DEFAULT_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """What a gateway tells Kafka clients of itself."""

    host: str
    port: int
    protocol: str = "PLAINTEXT"
    """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""


def parse_address(text: str, name: str, *, port_min: int = 0) -> HostPort:
    """Return `host:port`, `[v6]:port` or `:port` (all interfaces), or raise `InvalidConfig`."""
    host, colon, digits = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    port = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 5 else -1
    if (
        not colon
        or (":" in host and not bracketed)
        or any(c.isspace() or c in "/,@" for c in host)
        or not port_min <= port <= PORT_MAX
    ):
        raise InvalidConfig(
            f"{name} is {text!r}; it is host:port, like 127.0.0.1:9092 or [::1]:9092"
        )
    return HostPort(host, port)


def wanted_address(text: str) -> HostPort | None:
    """Return what RIACHO_KAFKA asks for; None: no listener. Raises `InvalidConfig`."""
    text = text.strip()
    if text.lower() == OFF:
        return None
    if text.lower() in ("", DEFAULT):
        return DEFAULT_ADDRESS
    return parse_address(text, "--kafka (RIACHO_KAFKA)")


def is_default(text: str) -> bool:
    """Whether nobody has asked for an address, so that the gateway can do without."""
    return text.strip().lower() in ("", DEFAULT)


def advertised_address(listens: HostPort, own_port: int, advertised: str) -> HostPort:
    """Return what clients are told of a gateway that listens at `listens` and at `own_port`.

    A worker has a port of its own. If the advertised port is another than the one listened on, as
    behind a forwarded port, that of a worker is as far from it as `own_port` from the shared one.
    Raises `InvalidConfig`.
    """
    if advertised:
        given = parse_address(advertised, "RIACHO_KAFKA_ADVERTISED", port_min=1)
        if given.host in _ANY:
            raise InvalidConfig(
                f"RIACHO_KAFKA_ADVERTISED is {advertised!r}; clients cannot connect to all"
                " interfaces: give the name or address at which they reach this machine"
            )
        return HostPort(given.host, given.port + own_port - listens.port)
    host = listens.host
    if host in _ANY:
        host = socket.gethostname()
    elif host.lower().rstrip(".") == "localhost":
        host = DEFAULT_HOST
    return HostPort(host, own_port)


def bound(address: HostPort, *, shares_port: bool = False) -> socket.socket:
    """Return a socket that listens at the address.

    With `shares_port` several sockets may have it. Raises `InvalidConfig` if the address is taken
    or cannot be used.
    """
    made = bound_if_free(address, shares_port=shares_port)
    if made is None:
        raise InvalidConfig(
            f"--kafka {address}: another process listens there, a Kafka broker or a gateway;"
            " choose another port, or --no-kafka"
        )
    return made


def bound_if_free(address: HostPort, *, shares_port: bool = False) -> socket.socket | None:
    """Return what `bound` does, or None if another process listens at the address."""
    try:
        found = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise InvalidConfig(f"--kafka {address}: the host is not known here: {error}") from None
    # IPv4 first: a name with both families must be what is advertised.
    family, kind, protocol, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
    made = socket.socket(family, kind, protocol)
    try:
        # Without the right to share it, a port is taken also if another process shares it.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind(where)
        # Only this makes sure: two that do not listen yet may have the same address.
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise InvalidConfig(f"--kafka {address}: cannot listen there: {error.strerror}") from None
    return made


def own_port_after(address: HostPort) -> socket.socket:
    """Return a socket that listens at the first free port after that of `address`."""
    last = min(PORT_MAX, address.port + OWN_PORTS_MAX)
    for port in range(address.port + 1, last + 1):
        made = bound_if_free(HostPort(address.host, port))
        if made is not None:
            return made
    raise InvalidConfig(
        f"--kafka {address}: none of the ports up to {last} is free, and every worker needs one"
    )


def is_free(address: HostPort) -> bool:
    """Whether nobody listens at `address`, not even on a port that is shared."""
    made = bound_if_free(address)
    if made is None:
        return False
    made.close()
    return True


def chosen(text: str, advertised: str, workers: int) -> tuple[str, HostPort | None, str]:
    """Return what `riacho serve` listens on: the setting for its processes, the address, a warning.

    An address that was asked for must be free, and becomes one with a port. If only the default is
    taken, nothing listens. Raises `InvalidConfig`.
    """
    address = wanted_address(text)
    if address is None:
        return OFF, None, ""
    advertised_address(address, address.port, advertised)
    if is_default(text):
        if is_free(address):
            # A single process looks again when it listens: another one may have been faster.
            return DEFAULT if workers == 1 else str(address), address, ""
        return OFF, None, taken(address)
    with bound(address) as probe:
        address = HostPort(address.host, int(probe.getsockname()[1]))
    return str(address), address, ""


def taken(address: HostPort) -> str:
    """Return what the operator is told if the default address is taken."""
    return (
        f"{address} is taken, by a Kafka broker or another gateway: this one serves HTTP only;"
        " --kafka HOST:PORT gives Kafka's clients another address"
    )
