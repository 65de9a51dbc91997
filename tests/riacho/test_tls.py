"""The SDK and the command line over TLS, at a gateway that wants to know who calls."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from riacho import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from riacho.errors import GatewayUnreachable
from riacho.http.tls import client_context
from storage.errors import (
    InvalidConfig,
    InvalidRequest,
    OutcomeUnknown,
    TopicUnauthorized,
    Unauthenticated,
)
from tests.certificates import of_client, own, trusting
from tests.commands import exit_code
from tests.gateway import GatewayProcess, start_gateway

AUTHORITY = trustme.CA()
OTHER = trustme.CA()


class Place:
    """A gateway, and files for its clients."""

    def __init__(self, gateway: GatewayProcess, path: Path) -> None:
        self.gateway = gateway
        self.url = gateway.url
        self.ca = str(path / "ca.pem")
        self.wrong_ca = str(path / "wrong.pem")
        self.root = str(of_client(AUTHORITY, path / "root.pem", "root"))
        self.nobody = str(of_client(OTHER, path / "nobody.pem", "root"))
        AUTHORITY.cert_pem.write_to_path(self.ca)
        OTHER.cert_pem.write_to_path(self.wrong_ca)

    def new_key(self, principal: str) -> str:
        """Return a key of `principal`, made by root."""
        reply = httpx.post(
            f"{self.url}/v1/keys",
            json={"principal": principal},
            verify=trusting(AUTHORITY, client=Path(self.root)),
            timeout=60,
        )
        assert reply.status_code == 201, reply.text
        key: str = reply.json()["key"]
        return key


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("tls")
    clients = path / "clients.pem"
    AUTHORITY.cert_pem.write_to_path(clients)
    environment = {
        "RIACHO_TLS_CERT": str(own(AUTHORITY, path / "own.pem")),
        "RIACHO_TLS_CLIENT_CA": str(clients),
        "RIACHO_SECURITY": "on",
        "RIACHO_SUPER_USERS": "User:root",
        "RIACHO_SSL_PRINCIPAL_MAPPING_RULES": "RULE:^CN=(.*?),.*$/$1/",
    }
    with start_gateway(path, env=environment, tls=trusting(AUTHORITY)) as gateway:
        place = Place(gateway, path)
        with Admin(place.url, ca_file=place.ca, client_cert=place.root) as admin:
            admin.create_topic("orders")
        yield place


def test_clients_with_a_certificate_write_and_read(place: Place) -> None:
    with Producer(place.url, ca_file=place.ca, client_cert=place.root) as producer:
        producer.send("orders", "by certificate").result(timeout=60)
    with Consumer(
        place.url, ca_file=place.ca, client_cert=(place.root, place.root), group_id="g",
        auto_offset_reset="earliest",
    ) as consumer:  # fmt: skip
        consumer.subscribe("orders")
        assert consumer.poll(timeout_ms=60_000)[0].value == b"by certificate"


def test_spark_reads_and_writes_with_options(place: Place) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    from riacho.spark.read.reading import RiachoReader
    from riacho.spark.write.options import parse_batch
    from riacho.spark.write.transactions import Connection

    with Admin(place.url, ca_file=place.ca, client_cert=place.root) as admin:
        admin.create_topic("rows")
    with Producer(place.url, ca_file=place.ca, client_cert=place.root) as producer:
        producer.send("rows", "a row").result(timeout=60)
    _, key_id, secret, _ = place.new_key("User:root").split("_")
    options = {"url": place.url, "caFile": place.ca, "user": key_id, "password": secret}
    schema = StructType([StructField("value", BinaryType())])

    reader = RiachoReader(options | {"subscribe": "rows"}, schema)
    rows = [row for part in reader.partitions() for batch in reader.read(part)
            for row in batch.to_pylist()]  # fmt: skip
    assert rows == [{"value": b"a row"}]

    with Connection(parse_batch(options | {"topic": "rows"})) as connection:
        connection.abort(connection.begin("spark-tls"))


def test_asynchronous_clients_take_a_token(place: Place) -> None:
    key = place.new_key("User:root")

    async def use() -> None:
        async with (
            AsyncAdmin(place.url, ca_file=place.ca, token=key) as admin,
            AsyncProducer(place.url, ca_file=place.ca, token=key) as producer,
            AsyncConsumer(place.url, ca_file=place.ca, token=key) as consumer,
        ):
            await admin.create_topic("async")
            await (await producer.send("async", "x"))
            consumer.assign([("async", 0)])
            consumer.seek("async", 0, 0)
            assert len(await consumer.poll(timeout_ms=60_000)) == 1

    asyncio.run(use())


def test_the_id_and_the_secret_of_a_key_are_user_and_password(place: Place) -> None:
    _, key_id, secret, _ = place.new_key("User:root").split("_")
    with Admin(place.url, ca_file=place.ca, basic=(key_id, secret)) as admin:
        assert any(topic.name == "orders" for topic in admin.list_topics())
    url = place.url.replace("https://", f"https://{key_id}:{secret}@")
    with Admin(url, ca_file=place.ca) as admin:
        assert admin.describe_topic("orders").name == "orders"


@pytest.mark.parametrize("shown", ["RIACHO_TOKEN", "RIACHO_CLIENT_CERT", "RIACHO_USER"])
def test_the_command_line_takes_them_from_the_environment(place: Place, shown: str) -> None:
    env = {"RIACHO_URL": place.url, "RIACHO_CA_FILE": place.ca}
    if shown == "RIACHO_CLIENT_CERT":
        env[shown] = place.root
    else:
        key = place.new_key("User:root")
        _, key_id, secret, _ = key.split("_")
        env |= {"RIACHO_USER": key_id, "RIACHO_PASSWORD": secret}
        if shown == "RIACHO_TOKEN":
            env = {"RIACHO_URL": place.url, "SSL_CERT_FILE": place.ca, "RIACHO_TOKEN": key}

    code, done = exit_code("topic", "list", env=env)

    assert code == 0, done.stderr
    assert b"orders" in done.stdout


def test_an_untrusted_certificate_is_a_sentence_and_no_retry(place: Place) -> None:
    env = {"RIACHO_URL": place.url, "RIACHO_CA_FILE": place.wrong_ca}
    code, done = exit_code("topic", "list", env=env)

    assert code == 1
    assert b"is not trusted" in done.stderr
    assert b"RIACHO_CA_FILE names a file" in done.stderr
    assert b"riacho serve" not in done.stderr
    with (
        Producer(place.url, ca_file=place.wrong_ca) as producer,
        pytest.raises(GatewayUnreachable, match="is not trusted"),
    ):
        producer.send("orders", "x").result(timeout=60)


def test_a_refused_certificate_of_a_client_is_explained(place: Place) -> None:
    with (
        Admin(place.url, ca_file=place.ca, client_cert=place.nobody) as admin,
        pytest.raises((GatewayUnreachable, OutcomeUnknown), match="RIACHO_CLIENT_CERT"),
    ):
        admin.list_topics()


def test_http_at_a_port_of_tls_is_explained(place: Place) -> None:
    url = place.url.replace("https://", "http://")
    with Admin(url) as admin, pytest.raises(InvalidRequest, match="use https://"):
        admin.list_topics()


def test_files_that_cannot_be_used_are_named(place: Place, tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("hello")
    cases = [
        ({"RIACHO_CA_FILE": "/nowhere"}, "RIACHO_CA_FILE /nowhere: No such file"),
        ({"RIACHO_CA_FILE": str(text)}, "holds no certificates in PEM"),
        ({"RIACHO_CLIENT_CERT": "/nowhere"}, "RIACHO_CLIENT_CERT /nowhere: No such file"),
        ({"RIACHO_CLIENT_CERT": str(text)}, "cannot be used with the key"),
        ({"RIACHO_CLIENT_KEY": str(text)}, "says nothing without RIACHO_CLIENT_CERT"),
    ]
    for environment, reason in cases:
        with pytest.raises(InvalidConfig, match=reason):
            client_context(environment=environment)
        env = {"RIACHO_URL": place.url, **environment}
        assert exit_code("topic", "list", env=env)[0] == 1


def test_a_bad_credential_is_final(place: Place) -> None:
    bad = "rk_AAAAAAAAAAAA_secret_000000"
    with (
        Producer(place.url, ca_file=place.ca, token=bad) as producer,
        pytest.raises(Unauthenticated),
    ):
        producer.send("orders", "x").result(timeout=60)
    with Consumer(place.url, ca_file=place.ca, token=bad) as consumer:
        consumer.assign([("orders", 0)])
        with pytest.raises(Unauthenticated):
            consumer.poll(timeout_ms=60_000)
    env = {"RIACHO_URL": place.url, "RIACHO_CA_FILE": place.ca, "RIACHO_TOKEN": bad}
    code, done = exit_code("topic", "list", env=env)
    assert code == 1
    assert b"SASL_AUTHENTICATION_FAILED" in done.stderr
    assert b"secret" not in done.stderr


def test_what_nobody_has_granted_is_final(place: Place) -> None:
    key = place.new_key("User:ana")
    with (
        Producer(place.url, ca_file=place.ca, token=key, enable_idempotence=False) as producer,
        pytest.raises(TopicUnauthorized),
    ):
        producer.send("orders", "x").result(timeout=60)
    with Consumer(place.url, ca_file=place.ca, token=key) as consumer:
        consumer.assign([("orders", 0)])
        with pytest.raises(TopicUnauthorized):
            consumer.poll(timeout_ms=60_000)


@pytest.mark.slow
def test_a_quota_slows_a_producer_down_and_loses_nothing(place: Place) -> None:
    """At 20,000 bytes a second, with a burst of two seconds, 100,000 bytes take three seconds."""
    with Admin(place.url, ca_file=place.ca, client_cert=place.root) as admin:
        admin.create_topic("slow")
    put = httpx.put(
        f"{place.url}/v1/quotas",
        json={"user": "root", "producer_byte_rate": 20_000},
        verify=trusting(AUTHORITY, client=Path(place.root)),
        timeout=60,
    )
    assert put.status_code == 200, put.text
    with Producer(
        place.url, ca_file=place.ca, client_cert=place.root, compression_type="none",
        batch_size=12_000,
    ) as producer:  # fmt: skip
        sent = [producer.send("slow", bytes([65 + n]) * 10_000) for n in range(10)]
        assert [each.result(timeout=100).offset for each in sent] == list(range(10))
    assert '"status":429' in place.gateway.log.read_text()
