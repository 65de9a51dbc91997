"""Names with slashes arrive as names: of groups that work, of topics that cannot exist."""

import httpx
import pytest

from riacho import Admin, Consumer, Producer
from storage.errors import InvalidRequest, InvalidTopic, UnknownGroup, UnknownTransaction
from tests.gateway import GatewayProcess
from tests.riacho.cli.test_cli import riacho

NAME = "a/b"


def test_groups(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        with pytest.raises(UnknownGroup, match="'a/b'"):
            admin.describe_group(NAME)
        admin.create_topic("t")
        with Consumer(gateway.url, group_id=NAME, auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            with Producer(gateway.url) as producer:
                producer.send("t", value=b"v")
            while not consumer.poll(60_000):
                pass
        assert NAME in [each.group for each in admin.list_groups()]
        assert admin.describe_group(NAME).group == NAME
        assert [each.lag for each in admin.group_lag(NAME)] == [0]
        assert admin.group_offsets(NAME)
        admin.delete_group(NAME)
        assert NAME not in [each.group for each in admin.list_groups()]


def test_transactions(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        for call in (admin.describe_transaction, admin.abort_transaction):
            with pytest.raises(UnknownTransaction, match=r"'a/b\.4013\.6'|'a/b'"):
                call("a/b.4013.6")
    with (
        Producer(gateway.url, transactional_id=NAME) as producer,
        pytest.raises(InvalidRequest, match="'a/b' is not a name"),
        producer.transaction(),
    ):
        pass


def test_topics(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        for call in (admin.describe_topic, admin.partitions, admin.delete_topic):
            with pytest.raises(InvalidTopic, match="'a/b'"):
                call(NAME)


def test_the_command_line(gateway: GatewayProcess) -> None:
    for command in (("group", "describe"), ("group", "lag"), ("topic", "describe")):
        assert b"'a/b'" in riacho(*command, NAME, url=gateway.url, code=1).stderr


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/groups/{group}", 404),
        ("GET", "/v1/topics/{topic}", 400),
        ("POST", "/v1/topics/{topic}/records", 400),
    ],
)
def test_they_are_counted_by_the_route(
    gateway: GatewayProcess, method: str, path: str, status: int
) -> None:
    encoded = path.format(group="not%2Fthere", topic="not%2Fthere")
    answer = httpx.request(method, gateway.url + encoded)
    assert answer.status_code == status
    assert f'route="{path}",status="{status}"' in httpx.get(f"{gateway.url}/metrics").text
