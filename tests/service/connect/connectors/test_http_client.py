"""Connectors reach the servers that they may, at the address that was checked, and no others."""

import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trustme

from service.connect.config.keys import Config
from service.connect.connectors.catalog import plugin_of
from service.connect.connectors.http.addresses import refused_because
from service.connect.connectors.http.client import (
    REDIRECTS_MAX,
    GuardedClient,
    RefusedAddress,
    Resolve,
    resolve_by_system,
)
from service.connect.data.errors import RetriableFault, TaskFault
from tests.service.connect.connectors.harness import environment
from tests.service.connect.connectors.http_server import Answer, Asked, LocalServer, local_server

pytestmark = pytest.mark.anyio

BODY_BYTES_MAX = 100_000

PRIVATE = [
    *("127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("::1", "fc00::1", "fd12:3456::1", "fec0::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:7f00:1::", "::127.0.0.1"),
    *("192.0.2.1", "198.18.0.1", "240.0.0.1", "255.255.255.255"),
]
NEVER = [
    *("169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1%lo"),
    *("fd00:ec2::254", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1"),
]
SPELLINGS = ["localhost", "127.1", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with local_server() as started:
        yield started


@asynccontextmanager
async def client(
    *, private: bool = True, resolve: Resolve = resolve_by_system, tls: ssl.SSLContext | None = None
) -> AsyncIterator[GuardedClient]:
    made = GuardedClient(
        environment(private_addresses=private),
        connect_s=60,
        request_s=60,
        body_bytes_max=BODY_BYTES_MAX,
        resolve=resolve,
        tls=tls,
    )
    try:
        yield made
    finally:
        await made.aclose()


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_unless_allowed(address: str) -> None:
    assert refused_because(address, private_allowed=False)
    assert refused_because(address, private_allowed=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_some_addresses_are_always_refused(address: str) -> None:
    assert refused_because(address, private_allowed=False)
    assert refused_because(address, private_allowed=True)


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "64:ff9b::8.8.8.8"])
def test_addresses_of_the_internet_are_not(address: str) -> None:
    assert refused_because(address, private_allowed=False) is None


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_of_this_machine_is_reached(server: LocalServer, host: str) -> None:
    async with client(private=False) as guarded:
        with pytest.raises(TaskFault, match=r"may not be reached|not a URL"):
            await guarded.send("GET", f"http://{host}:{server.port}/", {})
    assert server.asked == []


async def test_one_private_address_among_public_ones_is_enough_to_refuse() -> None:
    async def resolve(_: str, __: int) -> Sequence[str]:
        return ["8.8.8.8", "127.0.0.1"]

    async with client(private=False, resolve=resolve) as guarded:
        with pytest.raises(RefusedAddress, match=r"127\.0\.0\.1"):
            await guarded.send("GET", "http://example.com/", {})


async def test_the_checked_address_is_the_one_that_is_connected_to(server: LocalServer) -> None:
    """An answer that changes between the check and the connection would be asked for twice."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    names: list[str] = []

    async def resolve(name: str, _: int) -> Sequence[str]:
        names.append(name)
        return answers.pop(0)

    # Each reply ends its connection, so that the next request resolves the name anew.
    server.answer = lambda _: Answer(headers={"Connection": "close"})
    async with client(resolve=resolve) as guarded:
        reply = await guarded.send("GET", f"http://changes.test:{server.port}/", {})
        assert reply.status == 200
        assert names == ["changes.test"]
        with pytest.raises(RefusedAddress, match=r"169\.254"):
            await guarded.send("GET", f"http://changes.test:{server.port}/", {})
    [asked] = server.asked
    assert asked.headers["host"] == f"changes.test:{server.port}"


async def test_tls_verifies_the_name_and_not_the_address() -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("right.test").configure_cert(serving)
    names: list[str | None] = []
    serving.sni_callback = lambda _, name, __: names.append(name)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def resolve(_: str, __: int) -> Sequence[str]:
        return ["127.0.0.1"]

    with local_server(serving) as server:
        async with client(resolve=resolve, tls=trusting) as guarded:
            reply = await guarded.send("GET", f"https://right.test:{server.port}/", {})
            assert reply.status == 200
            with pytest.raises(RetriableFault, match=r"wrong\.test"):
                await guarded.send("GET", f"https://wrong.test:{server.port}/", {})
    assert names == ["right.test", "wrong.test"]


async def test_redirects_are_checked_anew(server: LocalServer) -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"] if name == "allowed.test" else await resolve_by_system(name, port)

    targets = ["http://169.254.169.254/latest/meta-data", "//0.0.0.0/", "file:///etc/passwd"]
    for target in targets:
        server.answer = lambda _, target=target: Answer(302, headers={"Location": target})  # type: ignore[misc]
        async with client(resolve=resolve) as guarded:
            with pytest.raises(TaskFault):
                await guarded.send("GET", f"http://allowed.test:{server.port}/", {})
    assert len(server.asked) == len(targets)


async def test_redirects_end(server: LocalServer) -> None:
    def answer(asked: Asked) -> Answer:
        n = int(asked.path[1:])
        return Answer(200) if n == 0 else Answer(307, headers={"Location": f"/{n - 1}"})

    server.answer = answer
    async with client() as guarded:
        reply = await guarded.send("POST", f"{server.url}/{REDIRECTS_MAX}", {}, b"body")
        assert reply.status == 200
        assert {(each.method, each.body) for each in server.asked} == {("POST", b"body")}
        with pytest.raises(TaskFault, match="more than 5 times"):
            await guarded.send("POST", f"{server.url}/{REDIRECTS_MAX + 1}", {}, b"body")
        server.answer = lambda _: Answer(302, headers={"Location": "/elsewhere"})
        with pytest.raises(TaskFault, match="elsewhere"):
            await guarded.send("POST", server.url, {}, b"body")


async def test_secrets_do_not_follow_to_another_server(server: LocalServer) -> None:
    with local_server() as other:
        server.answer = lambda _: Answer(307, headers={"Location": f"{other.url}/there"})
        async with client() as guarded:
            secrets = {"Authorization": "Bearer x", "X-Api-Key": "y", "Content-Type": "text/plain"}
            await guarded.send("POST", server.url, secrets, b"body")

    assert server.asked[0].headers["x-api-key"] == "y"
    [asked] = other.asked
    assert asked.headers["content-type"] == "text/plain"
    assert not {"authorization", "x-api-key"} & asked.headers.keys()


async def test_long_replies_are_cut(server: LocalServer) -> None:
    server.answer = lambda _: Answer(body=b"x" * (BODY_BYTES_MAX + 1))
    async with client() as guarded:
        reply = await guarded.send("GET", server.url, {})
        assert reply.is_cut
        assert len(reply.body) == BODY_BYTES_MAX
        server.answer = lambda _: Answer(body=b"x" * BODY_BYTES_MAX)
        assert not (await guarded.send("GET", server.url, {})).is_cut


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.test/",
        "file:///etc/passwd",
        "http://",
        "a.test",
        "http://u:p@a.test/",
        "gopher://a",
    ],
)
async def test_other_urls_are_refused(url: str) -> None:
    async with client() as guarded:
        with pytest.raises(TaskFault):
            await guarded.send("GET", url, {})


@pytest.mark.parametrize(
    "host", ["localhost", "10.0.0.1", "169.254.169.254", "[::1]", "a.localhost."]
)
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("HttpSink", "http.api.url"),
        ("AivenHttpSink", "http.url"),
        ("HttpSource", "http.request.url"),
    ],
)
def test_a_configuration_with_such_an_address_is_refused_at_once(
    name: str, key: str, host: str
) -> None:
    plugin = plugin_of(name)
    assert plugin is not None
    config: Config = {key: f"http://{host}/x"}

    assert key in plugin.check(config, environment())
    is_never = host.startswith("169")
    assert (key in plugin.check(config, environment(private_addresses=True))) is is_never
