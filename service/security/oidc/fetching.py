"""Fetching a small document from an identity provider, with limits on everything.

- HTTPS; plain HTTP only from this machine (loopback), for trials and tests.
- No redirects, no compression, `DOCUMENT_BYTES_MAX`, `FETCH_S_MAX` in all, no proxy.
- An address that another document named (`jwks_uri`) may not lead into the network of the gateway:
  the name is resolved once, every address it has is checked, and the connection goes to one of
  those, so a name that resolves to something else a moment later gains nothing.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from service.process.without_pandas import permit
from storage.errors import InvalidConfig, Unavailable

if TYPE_CHECKING:
    import httpx

DOCUMENT_BYTES_MAX: Final = 64 * 1024
FETCH_S_MAX: Final = 5.0
ADDRESSES_TRIED_MAX: Final = 3

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def checked_url(text: str, what: str) -> SplitResult:
    """Return the parts of `text`, or raise `InvalidConfig` if we would not call it."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        raise InvalidConfig(f"{what}: {text!r} is no URL") from None
    if url.username is not None or url.fragment or not url.hostname:
        raise InvalidConfig(f"{what}: {text!r} must name a host, and neither user nor fragment")
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url)):
        raise InvalidConfig(f"{what}: {text!r} must be https (http is for loopback only)")
    return url


def is_loopback(url: SplitResult) -> bool:
    """Whether the URL names this machine."""
    host = url.hostname or ""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def is_same_place(one: SplitResult, other: SplitResult) -> bool:
    return (one.scheme, one.hostname, _port(one)) == (other.scheme, other.hostname, _port(other))


def is_public(address: Address) -> bool:
    """Whether an address is of the internet, and of no network that only we may reach."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address in _TRANSLATED:
            return False
    return address.is_global and not address.is_multicast


_TRANSLATED: Final = ipaddress.ip_network("64:ff9b::/32")
"""Addresses of IPv4 as networks without it write them (NAT64)."""


@dataclass(frozen=True)
class DocumentFetcher:
    """Gets documents; `ca_file` holds the authorities to trust instead of the usual ones."""

    ca_file: str = ""
    s_max: float = FETCH_S_MAX

    async def fetch(self, url: SplitResult, *, may_be_private: bool) -> bytes:
        """Return the document at a checked URL, or raise `Unavailable`."""
        try:
            async with asyncio.timeout(self.s_max):
                return await self._fetch(url, may_be_private=may_be_private)
        except TimeoutError:
            raise Unavailable(f"{shown(url)} took longer than {self.s_max:g} s") from None

    async def _fetch(self, url: SplitResult, *, may_be_private: bool) -> bytes:
        permit("httpx")
        import httpx

        addresses = await _addresses(url)
        allowed = _reachable(url, may_be_private=may_be_private)
        if not all(allowed(each) for each in addresses):
            raise Unavailable(f"{shown(url)} leads to an address that is not public")
        transport = httpx.AsyncHTTPTransport(verify=self._context, retries=0, trust_env=False)
        async with httpx.AsyncClient(
            transport=transport, timeout=self.s_max, follow_redirects=False, trust_env=False
        ) as client:
            return await self._first_answer(client, url, addresses[:ADDRESSES_TRIED_MAX])

    async def _first_answer(
        self, client: "httpx.AsyncClient", url: SplitResult, addresses: Sequence[Address]
    ) -> bytes:
        """Return the document from the first address that a connection can be made to."""
        import httpx

        trouble = "no address"
        for address in addresses:
            try:
                return await _get(client, url, address)
            except httpx.HTTPError as error:
                trouble = f"{type(error).__name__} {error}".strip()
                if not isinstance(error, httpx.ConnectError):
                    break
        raise Unavailable(f"{shown(url)}: {trouble}")

    @cached_property
    def _context(self) -> ssl.SSLContext:
        import httpx

        if not self.ca_file:
            return httpx.create_ssl_context(trust_env=False)
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise Unavailable(f"RIACHO_JWT_CA_FILE: {error}") from error


def shown(url: SplitResult) -> str:
    """Return a URL as errors show it: without a query, which could hold a secret."""
    return f"{url.scheme}://{url.netloc}{url.path}"


def _reachable(url: SplitResult, *, may_be_private: bool) -> Callable[[Address], bool]:
    if url.scheme == "http":
        return lambda address: address.is_loopback
    return (lambda _: True) if may_be_private else is_public


async def _addresses(url: SplitResult) -> Sequence[Address]:
    """Return the addresses of the host, or raise `Unavailable`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(url.hostname, _port(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"{shown(url)}: there is no such host") from error
    # A scope of a link-local address comes after a per cent sign.
    texts = [str(each[4][0]).partition("%")[0] for each in found]
    return [ipaddress.ip_address(text) for text in dict.fromkeys(texts)]


async def _get(client: "httpx.AsyncClient", url: SplitResult, address: Address) -> bytes:
    """Get `url` from `address`; the certificate must be that of the host."""
    extensions: dict[str, Any] = {}
    if url.scheme == "https":
        extensions["sni_hostname"] = url.hostname
    query = f"?{url.query}" if url.query else ""
    host = f"[{address}]" if address.version == 6 else str(address)
    request = client.build_request(
        "GET",
        f"{url.scheme}://{host}:{_port(url)}{url.path or '/'}{query}",
        headers={
            "host": url.netloc,
            "accept": "application/json",
            "accept-encoding": "identity",
            "user-agent": "riacho",
        },
        extensions=extensions,
    )
    response = await client.send(request, stream=True)
    try:
        if response.status_code != 200:
            raise Unavailable(f"{shown(url)} answered {response.status_code} instead of 200")
        if response.headers.get("content-encoding", "identity") != "identity":
            raise Unavailable(f"{shown(url)} answered compressed, though not asked to")
        body = b""
        async for part in response.aiter_raw():
            body += part
            if len(body) > DOCUMENT_BYTES_MAX:
                raise Unavailable(f"{shown(url)} has more than {DOCUMENT_BYTES_MAX} bytes")
        return body
    finally:
        await response.aclose()


def _port(url: SplitResult) -> int:
    return url.port or (443 if url.scheme == "https" else 80)
