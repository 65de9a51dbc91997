"""A gateway with TLS that wants to know who calls, and how clients log in."""

import ssl
from pathlib import Path
from typing import Any, Final, Self

import httpx
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.gateway import GatewayProcess, free_port, start_gateway
from tests.integration.secured import CLOSED, super_key

USER: Final = "ana"
PASSWORD: Final = "geheim"
"""Of a user who may do everything, and logs in by SCRAM."""


class Secured:
    def __init__(self, path: Path) -> None:
        self.bootstrap = f"localhost:{free_port()}"
        self.key = super_key(path / "data")
        self.ca = path / "data" / "tls" / "ca.pem"
        self.gateway = self._start(path)
        try:
            self._add_user()
        except BaseException:
            self.gateway.kill()
            raise

    def _start(self, path: Path) -> GatewayProcess:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return start_gateway(
            path,
            *("--kafka", self.bootstrap, "--security", "on", "--tls-self-signed"),
            env={**CLOSED, "RIACHO_SUPER_USERS": f"User:{USER}"},
            tls=context,
        )

    @property
    def config(self) -> dict[str, Any]:
        """How a client on librdkafka logs in as root."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.key.split("_")[1],
            "sasl.password": self.key,
        }

    def as_root(self) -> httpx.Client:
        """Return a client of HTTP that may do everything; close it."""
        headers = {"authorization": f"Bearer {self.key}"}
        assert self.gateway.tls is not None
        return httpx.Client(
            base_url=self.gateway.url, headers=headers, verify=self.gateway.tls, timeout=60
        )

    def _add_user(self) -> None:
        users = [
            UserScramCredentialUpsertion(
                USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
            )
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        admin = AdminClient(self.config)
        for added in admin.alter_user_scram_credentials(users).values():
            added.result(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.gateway.stop()
