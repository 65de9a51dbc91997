"""Requests to servers that the operator has not chosen: guarded, bounded, without surprises.

A name is resolved once for each connection, all its addresses are checked, and the connection is
made to one of them: an answer that changes afterwards has no effect. TLS still verifies the name.
Redirects are requests of their own, with the same checks; what names the caller is left out when
they lead to another server. Proxies of the environment are not used.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import httpcore
import httpx

from service.connect.connectors.api import Environment
from service.connect.connectors.http.addresses import refused_because
from service.connect.connectors.http.urls import parsed_url, shown
from service.connect.data.errors import RetriableFault, TaskFault

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Takes a name and a port; returns addresses. Raises `OSError`."""

REDIRECTS_MAX: Final = 5
CONNECTIONS_MAX: Final = 4
HEADER_BYTES_MAX: Final = 64 * 1024
IDLE_S: Final = 30.0
_FOLLOWED: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})
_OF_NO_SERVER: Final = frozenset({"accept", "content-type", "idempotency-key", "if-none-match"})
"""Headers that a redirect may take to another server; others may be secrets."""


class RefusedAddress(TaskFault):
    """The server may not be reached from here; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    headers: Mapping[str, str]
    """By their names in lower case; of several with a name, the last."""
    body: bytes
    is_cut: bool = False
    """The body is longer than what was asked for at most."""


async def resolve_by_system(name: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _GuardedNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, environment: Environment, resolve: Resolve) -> None:
        self._environment = environment
        self._resolve = resolve
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        del local_address, socket_options
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._resolve(host, port)
        except (OSError, TimeoutError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from error
        for address in addresses:
            why = refused_because(address, private_allowed=self._environment.private_addresses)
            if why is not None:
                raise RefusedAddress(f"{host} may not be reached: its address {address} {why}")
        failed: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class GuardedClient:
    """Sends requests for one task. `aclose` it in the end."""

    def __init__(
        self,
        environment: Environment,
        *,
        connect_s: float,
        request_s: float,
        body_bytes_max: int,
        resolve: Resolve = resolve_by_system,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=CONNECTIONS_MAX,
            keepalive_expiry=IDLE_S,
            network_backend=_GuardedNetwork(environment, resolve),
        )
        self._timeouts = {"connect": connect_s, "read": request_s, "write": request_s}
        self._request_s = request_s
        self._connect_s = connect_s
        self._body_bytes_max = body_bytes_max

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        """Return the reply that is not a redirect.

        Raises `RetriableFault` if there is none, `RefusedAddress` and `TaskFault`.
        """
        at = parsed_url(url)
        for _ in range(REDIRECTS_MAX + 1):
            reply = await self._once(method, at, headers, body)
            location = reply.headers.get("location")
            if reply.status not in _FOLLOWED or location is None:
                return reply
            if method not in ("GET", "HEAD") and reply.status not in _KEEP_METHOD:
                raise TaskFault(
                    f"{shown(at)} answered {method} with {reply.status}, which would make it GET: "
                    f"configure {shown(at.join(location))} instead"
                )
            after = parsed_url(str(at.join(location)))
            if at.scheme == "https" and after.scheme != "https":
                raise TaskFault(f"{shown(at)} redirects to {shown(after)}, without TLS")
            if _origin(after) != _origin(at):
                headers = {k: v for k, v in headers.items() if k.lower() in _OF_NO_SERVER}
            at = after
        raise TaskFault(f"{shown(parsed_url(url))} redirects more than {REDIRECTS_MAX} times")

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _once(
        self, method: str, at: httpx.URL, headers: Mapping[str, str], body: bytes | None
    ) -> HttpReply:
        target = httpcore.URL(
            scheme=at.raw_scheme, host=at.raw_host, port=at.port, target=at.raw_path
        )
        # Not compressed: a few bytes could become many.
        sent = {"Host": at.netloc.decode(), "Accept-Encoding": "identity", **headers}
        fields = [(name.encode(), text.encode()) for name, text in sent.items()]
        try:
            # Besides each step, the whole: a server could send a byte now and then, for ever.
            async with (
                asyncio.timeout(self._connect_s + self._request_s),
                self._pool.stream(
                    method,
                    target,
                    headers=fields,
                    content=body,
                    extensions={"timeout": self._timeouts},
                ) as response,
            ):
                return await self._read(response)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise RetriableFault(f"{shown(at)}: {_words(error)}") from error
        except TimeoutError:
            raise RetriableFault(f"{shown(at)}: no whole answer in {self._request_s:g} s") from None

    async def _read(self, response: httpcore.Response) -> HttpReply:
        headers = {
            name.decode("latin-1").lower(): text.decode("latin-1")
            for name, text in response.headers
        }
        body = bytearray()
        async for chunk in response.aiter_stream():
            body += chunk
            if len(body) > self._body_bytes_max:
                break
        is_cut = len(body) > self._body_bytes_max
        return HttpReply(response.status, headers, bytes(body[: self._body_bytes_max]), is_cut)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
