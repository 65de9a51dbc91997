"""Real clients log in, with and without TLS."""

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka.admin import AdminClient

from service.kafka.door import KafkaDoor
from service.log.gateway import Gateway
from service.security.api_keys.users import Users
from service.security.tls.files import ClientAuth, TlsFiles, context_of
from tests.certificates import of_client, own, trusting
from tests.service.kafka.listener.served import door
from tests.service.kafka.listener.test_sasl import new_key
from tests.service.security.oidc.provider import Provider, provider

with warnings.catch_warnings():
    # It reads its own files in a way that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient

pytestmark = pytest.mark.anyio

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def idp() -> Iterator[Provider]:
    with provider() as running:
        yield running


async def bob(gateway: Gateway) -> None:
    await Users(gateway.metadata, gateway.world).set_password("bob", "geheim")


async def by_librdkafka(opened: KafkaDoor, **config: str) -> str:
    """Return the cluster's id, as a client on librdkafka learns it."""
    address = f"{opened.address.host}:{opened.address.port}"

    def ask() -> str:
        given = {name.replace("_", "."): value for name, value in config.items()}
        client = AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": opened.address.protocol,
                # A client that is refused keeps trying, and says so on standard error.
                "log_level": 0,
                **given,
            }
        )
        return str(client.list_topics(timeout=30).cluster_id)

    return await asyncio.to_thread(ask)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_librdkafka_with_a_password(mechanism: str) -> None:
    async with door() as (opened, gateway, _):
        await bob(gateway)
        login = {"sasl_mechanism": mechanism, "sasl_username": "bob", "sasl_password": "geheim"}
        assert len(await by_librdkafka(opened, **login)) == 22


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_with_a_password(mechanism: str) -> None:
    async with door() as (opened, gateway, _):
        await bob(gateway)
        client = AIOKafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{opened.address.port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="bob",
            sasl_plain_password="geheim",
        )
        await client.start()
        try:
            assert (await client.describe_cluster())["brokers"]
        finally:
            await client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_python_with_a_password(mechanism: str) -> None:
    async with door() as (opened, gateway, _):
        await bob(gateway)

        def ask() -> Any:
            client = KafkaAdminClient(
                bootstrap_servers=f"127.0.0.1:{opened.address.port}",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_plain_username="bob",
                sasl_plain_password="geheim",
            )
            try:
                return client.describe_cluster()
            finally:
                client.close()

        assert (await asyncio.to_thread(ask))["brokers"]


async def test_a_token_of_an_identity_provider(idp: Provider) -> None:
    settings = {"jwt_issuer": idp.url, "jwt_audience": "riacho", "super_users": "User:ana"}
    async with door(**settings) as (opened, gateway, _):
        now_s = gateway.world.now_ms() // 1000
        claims = {"iat": now_s, "exp": now_s + 3600}
        token = idp.token(**claims)

        def ask() -> str:
            client = AdminClient(
                {
                    "bootstrap.servers": f"127.0.0.1:{opened.address.port}",
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": "OAUTHBEARER",
                    "oauth_cb": lambda _: (token, now_s + 3600.0),
                    "log_level": 0,
                }
            )
            client.poll(1)
            return str(client.list_topics(timeout=30).cluster_id)

        assert len(await asyncio.to_thread(ask)) == 22


async def test_tls_with_a_password_and_with_a_key(authority: trustme.CA, tmp_path: Path) -> None:
    context = context_of(TlsFiles(cert=own(authority, tmp_path / "own.pem")))
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    async with door(context=context) as (opened, gateway, _):
        assert opened.address.protocol == "SASL_SSL"
        key, secret, _ = await new_key(gateway)
        login = {
            "ssl_ca_location": str(trusted),
            "sasl_mechanism": "PLAIN",
            "sasl_username": key.key_id,
            "sasl_password": secret,
        }
        assert len(await by_librdkafka(opened, **login)) == 22


async def test_a_client_certificate_says_who_calls(authority: trustme.CA, tmp_path: Path) -> None:
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    files = TlsFiles(
        cert=own(authority, tmp_path / "own.pem"),
        client_ca=trusted,
        client_auth=ClientAuth.REQUESTED,
    )
    rules = "RULE:^CN=(.*?),.*$/$1/"
    async with door(
        context=context_of(files), ssl_principal_mapping_rules=rules, super_users="User:ana"
    ) as (opened, _, _):
        shown = trusting(authority, client=of_client(authority, tmp_path / "ana.pem", "ana"))
        shown.verify_mode = ssl.CERT_REQUIRED
        client = AIOKafkaAdminClient(
            bootstrap_servers=f"localhost:{opened.address.port}",
            security_protocol="SSL",
            ssl_context=shown,
        )
        await client.start()
        try:
            assert (await client.describe_cluster())["brokers"]
        finally:
            await client.close()
