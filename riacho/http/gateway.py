"""HTTP to the gateway: one request in, one reply or one `RiachoError` out.

Only this module and its neighbours `credentials.py` and `tls.py` use httpx. It never retries,
because only its callers know what may be sent twice; the error says whether the gateway may have
acted.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from riacho import __version__
from riacho.errors import GatewayUnreachable, error_of, new_error
from riacho.http.identity import NOTHING_GIVEN, Credentials, split_url
from storage.errors import OutcomeUnknown, Rejected, RiachoError

if TYPE_CHECKING:
    import httpx

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"

DEFAULT_URL: Final = "http://127.0.0.1:8080"
CONNECT_TIMEOUT_S: Final = 5.0
CONNECTIONS_IDLE_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed body, or raise `OutcomeUnknown` if it is not JSON."""
        import msgspec

        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = self.body[:100].decode(errors="replace")
            detail = f"the reply is no JSON; is this URL a Riacho gateway? It said: {text}"
            raise new_error(OutcomeUnknown, detail, retryable=False) from error


class Gateway:
    """A pool of connections to the gateways behind one URL."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 30.0,
        connections_max: int | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`credentials`: what the program gives; the rest comes from the URL or the environment."""
        self.url, basic = split_url(url)
        credentials = credentials or NOTHING_GIVEN
        if basic is not None and (credentials.token, credentials.basic) == (None, None):
            credentials = replace(credentials, basic=basic)
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._connections_max = connections_max
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        json: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Return the reply if its status is below 400, else raise the error it describes.

        Raises `GatewayUnreachable` if nothing was sent, and `OutcomeUnknown` if the
        connection broke or the timeout expired before a reply arrived.
        """
        import httpx

        headers = dict(headers or {})
        if json is not None:
            import msgspec

            content = msgspec.json.encode(json)
            headers["content-type"] = JSON
        timeout = httpx.Timeout(
            timeout_s or self._timeout_s,
            connect=min(CONNECT_TIMEOUT_S, timeout_s or self._timeout_s),
        )
        try:
            response = await self._connected().request(
                method, self.url + path, params=params, content=content, headers=headers,
                timeout=timeout,
            )  # fmt: skip
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise self._unreachable(error) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise self._lost(method, path, error) from error
        if 300 <= response.status_code < 400:
            raise _redirected(response)
        if response.status_code >= 400:
            raise error_of(response.status_code, response.headers, response.content)
        return Reply(response.status_code, response.headers, response.content)

    async def close(self) -> None:
        """Close the connections; a later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _connected(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            from riacho.http.credentials import auth_of, client_headers
            from riacho.http.tls import client_context

            limits = httpx.Limits(
                max_connections=self._connections_max,
                max_keepalive_connections=self._connections_max or CONNECTIONS_IDLE_MAX,
                # The gateway keeps an idle connection for 75 s, load balancers for 60 s. The client
                # closes first, so it never writes to a connection that is being closed.
                keepalive_expiry=50.0,
            )
            self._client = httpx.AsyncClient(
                limits=limits,
                transport=self._transport,
                auth=auth_of(self.url, given=self._credentials),
                headers={"user-agent": f"riacho-python/{__version__}", **client_headers()},
                # Loading the certificate authorities takes 20 ms, which plain HTTP can save.
                verify=self._is_https and client_context(self._credentials),
                # A redirect could lead credentials astray.
                follow_redirects=False,
            )
        return self._client

    @property
    def _is_https(self) -> bool:
        return self.url.startswith("https://")

    def _unreachable(self, error: Exception) -> RiachoError:
        from riacho.http.tls import trouble_with

        if trouble := trouble_with(self.url, error):
            return new_error(GatewayUnreachable, trouble, retryable=False)
        reason = str(error) or type(error).__name__
        return new_error(GatewayUnreachable, f"no connection to {self.url}: {reason}")

    def _lost(self, method: str, path: str, error: Exception) -> RiachoError:
        from riacho.http.tls import hint_about, trouble_with

        if trouble := trouble_with(self.url, error):
            # With TLS 1.3 a client learns only when it reads that its certificate is refused; the
            # gateway has read nothing then.
            return new_error(GatewayUnreachable, trouble, retryable=False)
        reason = str(error) or type(error).__name__
        detail = f"no reply to {method} {path}: {reason}{hint_about(self.url, error)}"
        return new_error(OutcomeUnknown, detail, may_have_applied=method != "GET")


def gateway_url(url: str | None) -> str:
    """Return `url`, else `RIACHO_URL`, else the address where `riacho serve` listens by default."""
    return url or os.environ.get("RIACHO_URL") or DEFAULT_URL


def topic_path(topic: str, *rest: str | int) -> str:
    """Return the path of `topic` or of something below it."""
    return "/".join(["/v1/topics", quote(topic, safe=""), *map(str, rest)])


def _redirected(response: "httpx.Response") -> RiachoError:
    place = response.headers.get("location", "elsewhere").rpartition("@")[2]
    return new_error(
        Rejected,
        f"status {response.status_code} sends this request to {place}; redirects are not followed,"
        " because credentials would go there: is the URL of the gateway right?",
        status=response.status_code,
    )
