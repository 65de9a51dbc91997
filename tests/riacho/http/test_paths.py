"""Names with slashes arrive as names, and the gateway says what is wrong with them."""

import httpx
import pytest

from riacho import Admin, Consumer, Producer
from storage.errors import InvalidRequest, InvalidTopic, UnknownTransaction
from tests.gateway import GatewayProcess
from tests.riacho.cli.test_cli import riacho

NAME = "a/b"


def test_groups(gateway: GatewayProcess) -> None:
    with Admin(gateway.url) as admin:
        for call in (
            admin.describe_group,
            admin.group_lag,
            admin.group_offsets,
            admin.delete_group,
        ):
            with pytest.raises(InvalidRequest, match="'a/b' is not a name"):
                call(NAME)
        admin.create_topic("t")
    with Consumer(gateway.url, group_id=NAME) as consumer:
        consumer.subscribe("t")
        with pytest.raises(InvalidRequest, match="'a/b' is not a name"):
            consumer.poll(60_000)


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
    ("method", "path"),
    [
        ("GET", "/v1/groups/{group}"),
        ("GET", "/v1/topics/{topic}"),
        ("POST", "/v1/topics/{topic}/records"),
    ],
)
def test_they_are_counted_by_the_route(gateway: GatewayProcess, method: str, path: str) -> None:
    encoded = path.format(group="a%2Fb", topic="a%2Fb")
    answer = httpx.request(method, gateway.url + encoded)
    assert answer.status_code == 400
    assert f'route="{path}",status="400"' in httpx.get(f"{gateway.url}/metrics").text
