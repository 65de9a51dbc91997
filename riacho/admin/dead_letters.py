"""Dead letters of connectors, asked for over HTTP: counted, shown, sent again."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from riacho.admin.throttled import ThrottledGateway
from riacho.http.background import Synchronous
from riacho.http.gateway import gateway_url
from riacho.http.identity import Basic, ClientCert, Credentials

if TYPE_CHECKING:
    import httpx

CALL_S_MAX = 60.0
"""A call that sends letters takes 10 s at most, if the stores answer."""


class DeadLetters(Synchronous):
    """The dead letters of a deployment.

        with DeadLetters() as letters:
            for progress in letters.redrive("orders-dead", "origin"):
                print(progress["sent"])

    What is returned is what the calls below `/v1/dlq` answer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float = CALL_S_MAX,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """`url`: of a gateway; None means `RIACHO_URL`. The rest is as for `Admin`."""
        self._gateway = ThrottledGateway(
            gateway_url(url),
            timeout_s=timeout_s,
            transport=transport,
            credentials=Credentials(
                token=token, basic=basic, ca_file=ca_file, client_cert=client_cert
            ),
        )
        super().__init__()

    def list_topics(self) -> list[dict[str, Any]]:
        """Return the topics of dead letters that connectors name."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/dlq")["topics"]
        return found

    def summary(self, topic: str) -> dict[str, Any]:
        """Return the letters of a topic by exception and origin."""
        return dict(self._ask("GET", _path(topic)))

    def show(self, topic: str, **wanted: object) -> dict[str, Any]:
        """Return letters; `wanted`: the parameters of the call, like `exception` and `max`."""
        given = {name: str(value) for name, value in wanted.items() if value is not None}
        query = f"?{urlencode(given)}" if given else ""
        return dict(self._ask("GET", f"{_path(topic)}/letters{query}"))

    def redrive(
        self,
        topic: str,
        to: str,
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002 - As the call names it.
        rate: float | None = None,
        count_max: int | None = None,
        dry_run: bool = False,
        transform: Mapping[str, str] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Send letters again, and yield each answer until all are done.

        If it dies, it may be repeated: no letter is sent twice to the same destination.
        """
        body: dict[str, Any] = {
            "to": to,
            "filter": dict(filter or {}),
            "rate": rate,
            "max": count_max,
            "dry_run": dry_run,
            "transform": dict(transform or {}),
        }
        while True:
            found = dict(self._ask("POST", f"{_path(topic)}/redrive", body))
            yield found
            if count_max is not None:
                count_max -= found["sent"]
                body["max"] = count_max
            if found["done"] or count_max == 0:
                return
            body["next"] = found["next"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        async def ask() -> Any:
            return (await self._gateway.request(method, path, json=body)).json()

        return self._run(ask())

    async def _aclose(self) -> None:
        await self._gateway.close()


def _path(topic: str) -> str:
    return f"/v1/dlq/{quote(topic, safe='')}"
