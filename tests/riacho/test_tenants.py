"""The SDK with a tenant's key from the environment: it finds its own names again."""

from collections.abc import Iterator

import pytest

from riacho import Admin, Consumer, Producer
from service.security.acls import Acl, Operation, ResourceType
from service.security.api_keys.credentials import NewKey
from tests.gateway import start_gateway
from tests.service.security.test_revocation import client, made_key

TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
PREFIXES = ("acme.", "globex.")


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a gateway, and by prefix the key of a tenant."""
    path = tmp_path_factory.mktemp("tenants")
    with start_gateway(path, env={"RIACHO_SECURITY": "on"}) as gateway:
        root = made_key(path / "data", NewKey(principal="User:root", is_super=True))
        with client(gateway, root) as http:
            for kind in TYPES:
                acl = Acl(kind, "*", "User:tenant", Operation.ALL)
                body = {name: getattr(acl, name) for name in acl.__struct_fields__}
                assert http.post("/v1/acls", json=body).status_code == 201
            keys = {}
            for prefix in PREFIXES:
                new = {"principal": "User:tenant", "name_prefix": prefix}
                keys[prefix] = http.post("/v1/keys", json=new).json()["key"]
        yield gateway.url, keys


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_program_of_a_tenant_need_not_know_that_it_is_one(
    tenants: tuple[str, dict[str, str]], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = tenants
    monkeypatch.setenv("RIACHO_URL", url)
    monkeypatch.setenv("RIACHO_TOKEN", keys[prefix])
    with Admin() as admin:
        for name in ("orders", "copies"):
            assert admin.create_topic(name, partitions=2).name == name
        assert {topic.name for topic in admin.list_topics()} == {"orders", "copies"}
        with Producer() as producer:
            for number in range(20):
                value = f"{prefix}{number}"
                meta = producer.send("orders", value.encode(), key=str(number).encode()).result()
                assert meta.topic == "orders"
        copied = 0
        with (
            Consumer(
                group_id="copiers", auto_offset_reset="earliest", enable_auto_commit=False
            ) as consumer,
            Producer(transactional_id="copier") as producer,
        ):
            consumer.subscribe(pattern="ord.*")
            while copied < 20:
                records = consumer.poll(timeout_ms=2000)
                assert {record.topic for record in records} <= {"orders"}
                with producer.transaction():
                    for record in records:
                        producer.send("copies", record.value, key=record.key)
                    producer.send_offsets(consumer)
                copied += len(records)
            assert {place.topic for place in consumer.assignment()} == {"orders"}
        values = []
        with Consumer(group_id="readers", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("copies")
            while len(values) < 20:
                for record in consumer.poll(timeout_ms=2000):
                    assert record.topic == "copies"
                    values.append(record.value.decode())
        assert sorted(values) == sorted(f"{prefix}{number}" for number in range(20))
        assert {group.group for group in admin.list_groups()} == {"copiers", "readers"}
        admin.delete_topic("orders")
        assert [topic.name for topic in admin.list_topics()] == ["copies"]
