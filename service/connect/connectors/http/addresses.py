"""Which addresses connectors may reach: those of the internet, and more if the operator says so.

What is checked is always the address that is connected to, in the form that the system's resolver
gives it, so that no spelling matters (`0x7f.1`, `2130706433`, `localhost`, `::ffff:10.0.0.1`).
"""

import ipaddress
import socket
from collections.abc import Iterator
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

VARIABLE: Final = "RIACHO_CONNECT_PRIVATE_ADDRESSES"

_NEVER: Final = tuple(
    ipaddress.ip_network(each)
    for each in ("0.0.0.0/8", "169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "::/128")
)
"""Where clouds tell a machine its credentials, and what stands for no address at all."""

_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_PORT: Final = 9
"""Any: nothing is sent to it."""


def refused_because(text: str, *, private_allowed: bool) -> str | None:
    """Return why an address may not be reached, in words; None: it may."""
    for address in _with_inner(ipaddress.ip_address(text.partition("%")[0])):
        if address.is_multicast or any(address in each for each in _NEVER):
            return "is link-local, multicast or no address of a server"
        if private_allowed:
            continue
        if not address.is_global or (address.version == 6 and address.is_site_local):
            return f"is not of the internet: {VARIABLE} allows private addresses"
        if _is_of_this_machine(address):
            return f"is of this machine: {VARIABLE} allows that"
    return None


def _with_inner(address: Address) -> Iterator[Address]:
    """Yield the address, and those of version 4 that it stands for."""
    mapped = address.ipv4_mapped if address.version == 6 else None
    if mapped is not None:
        yield mapped
        return
    yield address
    if address.version == 6:
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo
        is_loopback = address == ipaddress.IPv6Address("::1")
        if any(address in each for each in (*_NAT64, _COMPATIBLE)) and not is_loopback:
            yield ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)


def _is_of_this_machine(address: Address) -> bool:
    """Tell whether packets to this address leave from it. None is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _PORT))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False
