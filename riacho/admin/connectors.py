"""Connectors, asked for over HTTP: the calls of Kafka Connect, which every gateway answers."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from riacho.admin.throttled import ThrottledGateway
from riacho.http.background import Synchronous
from riacho.http.gateway import gateway_url
from riacho.http.identity import Basic, ClientCert, Credentials

if TYPE_CHECKING:
    import httpx


class Connectors(Synchronous):
    """The connectors of a deployment.

        with Connectors() as connectors:
            connectors.apply("orders", {"connector.class": "Datagen", "topic": "orders"})
            print(connectors.status("orders")["connector"]["state"])

    What is returned is what Kafka Connect's REST API answers. Errors are `ConnectRefused`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        timeout_s: float = 30.0,
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

    def list_all(self) -> dict[str, Any]:
        """Return `status` and `info` of every connector, by its name."""
        return dict(self._ask("GET", "/connectors?expand=status&expand=info"))

    def describe(self, name: str) -> dict[str, Any]:
        """Return a connector: its configuration and its tasks."""
        return dict(self._ask("GET", _path(name)))

    def create(
        self, name: str, config: Mapping[str, str], *, initial_state: str | None = None
    ) -> dict[str, Any]:
        """Create a connector; `initial_state`: RUNNING, PAUSED or STOPPED."""
        body: dict[str, Any] = {"name": name, "config": dict(config)}
        if initial_state is not None:
            body["initial_state"] = initial_state
        return dict(self._ask("POST", "/connectors", body))

    def apply(self, name: str, config: Mapping[str, str]) -> dict[str, Any]:
        """Create a connector, or give it this configuration."""
        return dict(self._ask("PUT", _path(name, "config"), dict(config)))

    def delete(self, name: str) -> None:
        """Delete a connector, its tasks and its positions."""
        self._ask("DELETE", _path(name))

    def status(self, name: str) -> dict[str, Any]:
        """Return what a connector and its tasks do."""
        return dict(self._ask("GET", _path(name, "status")))

    def pause(self, name: str) -> None:
        """Let the tasks do nothing until `resume`."""
        self._ask("PUT", _path(name, "pause"))

    def resume(self, name: str) -> None:
        """Let the tasks go on."""
        self._ask("PUT", _path(name, "resume"))

    def stop(self, name: str) -> None:
        """End the tasks; then offsets can be changed."""
        self._ask("PUT", _path(name, "stop"))

    def restart(self, name: str, *, tasks: bool = True, only_failed: bool = False) -> None:
        """Restart a connector and its tasks, or those that have failed."""
        query = f"includeTasks={str(tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        self._ask("POST", f"{_path(name, 'restart')}?{query}")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return how far a connector has read, by partition."""
        found: list[dict[str, Any]] = self._ask("GET", _path(name, "offsets"))["offsets"]
        return found

    def set_offsets(self, name: str, offsets: list[dict[str, Any]]) -> None:
        """Set how far a stopped connector has read; an offset that is None is forgotten."""
        self._ask("PATCH", _path(name, "offsets"), {"offsets": offsets})

    def reset_offsets(self, name: str) -> None:
        """Let a stopped connector begin anew."""
        self._ask("DELETE", _path(name, "offsets"))

    def plugins(self, *, connectors_only: bool = True) -> list[dict[str, str]]:
        """Return the classes that configurations may name."""
        query = f"connectorsOnly={str(connectors_only).lower()}"
        found: list[dict[str, str]] = self._ask("GET", f"/connector-plugins?{query}")
        return found

    def keys_of(self, plugin: str) -> list[dict[str, Any]]:
        """Return the definitions of the keys of a class."""
        path = f"/connector-plugins/{quote(plugin, safe='')}/config"
        found: list[dict[str, Any]] = self._ask("GET", path)
        return found

    def validate(self, config: Mapping[str, str]) -> dict[str, Any]:
        """Return every key of a configuration, and what is wrong with it."""
        plugin = quote(config.get("connector.class", ""), safe="")
        path = f"/connector-plugins/{plugin}/config/validate"
        return dict(self._ask("PUT", path, dict(config)))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        async def ask() -> Any:
            reply = await self._gateway.request(method, f"/connect{path}", json=body)
            return reply.json() if reply.body else None

        return self._run(ask())

    async def _aclose(self) -> None:
        await self._gateway.close()


def _path(name: str, what: str = "") -> str:
    path = f"/connectors/{quote(name, safe='')}"
    return f"{path}/{what}" if what else path
