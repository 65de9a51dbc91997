"""Connections over real sockets, with handlers that do as the test says."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from service.kafka.call import KafkaCall
from service.kafka.listener.connection import (
    REQUESTS_MAX,
    UNSENT_BYTES_ALL_MAX,
    UNSENT_LITTLE_BYTES,
    KafkaConnection,
)
from service.kafka.protocol.apis import Api
from service.kafka.protocol.codec import decode_response, encode_request
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from service.kafka.protocol.messages.handshake import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from service.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from storage.errors import StoreUnavailable
from tests.service.kafka.listener.served import PATIENCE_S, Served, served

pytestmark = pytest.mark.anyio


class Gates:
    """Handlers of Heartbeat that wait until the test opens the gate of their group."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}

    def gate(self, group: str) -> asyncio.Event:
        return self._gates.setdefault(group, asyncio.Event())

    async def handle(self, call: KafkaCall, request: HeartbeatRequest) -> HeartbeatResponse:
        self.begun.append(request.group_id)
        await self.gate(request.group_id).wait()
        return HeartbeatResponse(error_code=len(request.group_id))

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.begun) < count:
                await asyncio.sleep(0.002)


async def ok(call: KafkaCall, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


async def test_replies_leave_in_the_order_of_requests() -> None:
    gates = Gates()
    async with served({Api.HEARTBEAT: gates.handle}) as at:
        client = await at.client()
        for group in ("a", "bb", "ccc"):
            client.send(4, HeartbeatRequest(group_id=group))
        await gates.until(3)
        assert gates.begun == ["a", "bb", "ccc"], "they begin in order, and overlap"
        for group in ("ccc", "bb", "a"):
            gates.gate(group).set()
        replies = [decode_response(Api.HEARTBEAT, 4, await client.frame()) for _ in range(3)]

    assert [(number, reply.error_code) for number, reply in replies] == [(1, 1), (2, 2), (3, 3)]


async def test_a_connection_has_only_so_many_requests_under_way() -> None:
    gates = Gates()
    async with served({Api.HEARTBEAT: gates.handle}) as at:
        client = await at.client()
        for number in range(REQUESTS_MAX + 3):
            client.send(4, HeartbeatRequest(group_id="g" * (number + 1)))
        await gates.until(REQUESTS_MAX)
        other = await at.client()
        assert (await other.ask(4, ApiVersionsRequest(**NAMED))).error_code == 0
        assert len(gates.begun) == REQUESTS_MAX
        for number in range(REQUESTS_MAX + 3):
            gates.gate("g" * (number + 1)).set()
        for number in range(REQUESTS_MAX + 3):
            correlation_id, _ = decode_response(Api.HEARTBEAT, 4, await client.frame())
            assert correlation_id == number + 1


NAMED = {"client_software_name": "a-test", "client_software_version": "1.0"}


async def test_api_versions() -> None:
    async with served({Api.HEARTBEAT: ok}) as at:
        client = await at.client()
        known = await client.ask(4, ApiVersionsRequest(**NAMED))
        assert {each.api_key for each in known.api_keys} == {
            Api.HEARTBEAT,
            Api.SASL_HANDSHAKE,
            Api.API_VERSIONS,
            Api.SASL_AUTHENTICATE,
        }
        assert {each.name: each.max_version_level for each in known.finalized_features} == {
            "group.version": 1,
            "transaction.version": 2,
        }
        assert (await client.ask(3, ApiVersionsRequest(**NAMED))).supported_features == []
        invalid = await client.ask(4, ApiVersionsRequest(client_software_name="?"))
        assert invalid.error_code == ErrorCode.INVALID_REQUEST


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    async with served({Api.HEARTBEAT: ok}) as at:
        client = await at.client()
        # Key 18, version 5, correlation id 7, and a body that we do not know.
        body = (18).to_bytes(2, "big") + (5).to_bytes(2, "big") + (7).to_bytes(4, "big") + b"????"
        client.writer.write(len(body).to_bytes(4, "big") + body)
        number, reply = decode_response(Api.API_VERSIONS, 0, await client.frame())
        assert number == 7
        assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
        [known] = reply.api_keys
        assert (known.api_key, known.min_version, known.max_version) == (18, 0, 4)
        assert (await client.ask(4, ApiVersionsRequest(**NAMED))).error_code == 0


@pytest.mark.parametrize(
    "frame",
    [
        (999).to_bytes(2, "big") + bytes(10),
        (12).to_bytes(2, "big") + (99).to_bytes(2, "big") + bytes(10),
        (12).to_bytes(2, "big") + (4).to_bytes(2, "big") + bytes(4) + b"\xff\xff\0\xff\xff\xff\xff",
        (18).to_bytes(2, "big") + (3).to_bytes(2, "big") + bytes(4) + b"\x7f\xff",
    ],
    ids=["unknown key", "unknown version", "broken body", "broken header"],
)
async def test_what_cannot_be_answered_ends_the_connection_and_no_other(frame: bytes) -> None:
    async with served({Api.HEARTBEAT: ok}) as at:
        other = await at.client()
        assert (await other.ask(4, HeartbeatRequest())).error_code == 0
        client = await at.client()
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        assert await client.is_closed()
        assert (await other.ask(4, HeartbeatRequest())).error_code == 0


@pytest.mark.parametrize("length", [-1, 3, 2**31 - 1])
async def test_a_length_that_cannot_be_ends_the_connection(length: int) -> None:
    async with served({Api.HEARTBEAT: ok}) as at:
        client = await at.client()
        client.writer.write(length.to_bytes(4, "big", signed=True))
        assert await client.is_closed()


async def test_a_handler_that_fails_ends_the_connection_and_no_other() -> None:
    async def fail(call: KafkaCall, request: Any) -> HeartbeatResponse:
        raise ZeroDivisionError("a mistake of ours")

    async with served({Api.HEARTBEAT: fail, Api.FIND_COORDINATOR: found}) as at:
        other, client = await at.client(), await at.client()
        await other.ask(4, FindCoordinatorRequest())
        client.send(4, HeartbeatRequest())
        assert await client.is_closed()
        await other.ask(4, FindCoordinatorRequest())


async def found(call: KafkaCall, request: Any) -> FindCoordinatorResponse:
    return FindCoordinatorResponse()


async def test_an_error_of_ours_becomes_a_code_where_the_response_has_one() -> None:
    async def fail(call: KafkaCall, request: Any) -> HeartbeatResponse:
        raise StoreUnavailable("the table does not answer")

    async with served({Api.HEARTBEAT: fail}) as at:
        client = await at.client()
        answer = await client.ask(4, HeartbeatRequest())
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_no_reply_for_acks_0_and_the_next_one_is_sent() -> None:
    async def produce(call: KafkaCall, request: ProduceRequest) -> ProduceResponse | None:
        return None if request.acks == 0 else ProduceResponse()

    async with served({Api.PRODUCE: produce}) as at:
        client = await at.client()
        client.send(9, ProduceRequest(acks=0))
        client.send(9, ProduceRequest(acks=1))
        number, _ = decode_response(Api.PRODUCE, 9, await client.frame())
        assert number == 2


async def test_a_client_that_ends_its_half_gets_what_is_under_way() -> None:
    gates = Gates()
    async with served({Api.HEARTBEAT: gates.handle}) as at:
        client = await at.client()
        client.send(4, HeartbeatRequest(group_id="a"))
        await gates.until(1)
        client.writer.write_eof()
        gates.gate("a").set()
        assert decode_response(Api.HEARTBEAT, 4, await client.frame())[0] == 1
        assert await client.is_closed()


async def test_who_hangs_up_is_forgotten_and_what_was_begun_ends() -> None:
    gates, released = Gates(), list[str]()

    async def handle(call: KafkaCall, request: HeartbeatRequest) -> HeartbeatResponse:
        call.when_sent.append(lambda: released.append("released"))
        return await gates.handle(call, request)

    async with served({Api.HEARTBEAT: handle}) as at:
        client = await at.client()
        client.send(4, HeartbeatRequest(group_id="a"))
        await gates.until(1)
        client.writer.transport.abort()
        gates.gate("a").set()
        await at.quiet()
        async with asyncio.timeout(PATIENCE_S):
            while not released:
                await asyncio.sleep(0.002)
    assert at.shared.by_address == {}


async def test_a_client_that_does_not_read_stops_only_itself() -> None:
    body, begun = bytes(1024 * 1024), list[int]()

    async def much(call: KafkaCall, request: Any) -> FindCoordinatorResponse:
        begun.append(1)
        return FindCoordinatorResponse(error_message=body.decode()[: 2**15 - 1], host="h" * 2**14)

    async with served({Api.FIND_COORDINATOR: much, Api.HEARTBEAT: ok}) as at:
        lazy = await at.client()
        lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        count = 2000
        for _ in range(count):
            lazy.send(2, FindCoordinatorRequest(key="k"))
        other = await at.client()
        for _ in range(20):
            await other.ask(4, HeartbeatRequest())
        seen = -1
        while seen != len(begun):
            seen = len(begun)
            await asyncio.sleep(0.2)
        assert seen < count
        lazy.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            await lazy.frame()
        assert len(begun) == count


async def test_large_requests_wait_for_room_and_small_ones_do_not() -> None:
    gate, begun = asyncio.Event(), list[int]()

    async def produce(call: KafkaCall, request: ProduceRequest) -> ProduceResponse:
        begun.append(1)
        await gate.wait()
        return ProduceResponse()

    def large() -> ProduceRequest:
        return ProduceRequest(transactional_id="x" * 30_000, acks=1)

    async with served({Api.PRODUCE: produce, Api.HEARTBEAT: ok}, held_bytes_max=70_000) as at:
        clients = [await at.client() for _ in range(4)]
        for client in clients:
            client.send(9, large())
        async with asyncio.timeout(PATIENCE_S):
            while len(begun) < 2:
                await asyncio.sleep(0.002)
        other = await at.client()
        for _ in range(20):
            await other.ask(4, HeartbeatRequest())
        assert len(begun) == 2
        gate.set()
        for client in clients:
            await client.frame()
        assert at.shared.room._admission.held_bytes == 0


async def test_who_is_told_to_wait_is_not_read_meanwhile() -> None:
    begun = list[int]()

    async def throttled(call: KafkaCall, request: Any) -> HeartbeatResponse:
        begun.append(1)
        return HeartbeatResponse(throttle_time_ms=50 if len(begun) == 1 else 0)

    async with served({Api.HEARTBEAT: throttled}) as at:
        client = await at.client()
        assert (await client.ask(4, HeartbeatRequest())).throttle_time_ms == 50
        client.send(4, HeartbeatRequest())
        await client.frame()
        assert len(begun) == 2


async def test_limits_of_connections() -> None:
    async with served({Api.HEARTBEAT: ok}, connections_per_address_max=2) as at:
        one, two = await at.client(), await at.client()
        await one.ask(4, HeartbeatRequest())
        await two.ask(4, HeartbeatRequest())
        assert await (await at.client()).is_closed()
        one.close()
        await at.quiet(1)
        await (await at.client()).ask(4, HeartbeatRequest())


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        ({"idle_s": 0.0}, b""),
        ({"stalled_s": 0.0}, (1000).to_bytes(4, "big") + b"part"),
    ],
    ids=["idle", "stalled"],
)
async def test_a_connection_that_only_stays_is_closed(
    limits: dict[str, float], sent: bytes
) -> None:
    async with served({Api.HEARTBEAT: ok}, **limits) as at:
        client = await at.client()
        await client.ask(4, HeartbeatRequest())
        if sent:
            client.writer.write(sent)
            async with asyncio.timeout(PATIENCE_S):
                while all(each.is_quiet for each in at.shared.connections):
                    await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)
        at.listener._look()
        assert await client.is_closed()


async def test_at_the_end_what_is_under_way_is_answered() -> None:
    gates = Gates()
    async with served({Api.HEARTBEAT: gates.handle}) as at:
        client, idle = await at.client(), await at.client()
        client.send(4, HeartbeatRequest(group_id="a"))
        await gates.until(1)
        stopping = asyncio.create_task(at.listener.stop(within_s=PATIENCE_S))
        assert await idle.is_closed()
        gates.gate("a").set()
        assert decode_response(Api.HEARTBEAT, 4, await client.frame())[0] == 1
        assert await client.is_closed()
        await stopping


async def test_without_security_sasl_is_refused_and_the_connection_stays() -> None:
    async with served({Api.HEARTBEAT: ok}) as at:
        client = await at.client()
        shaken = await client.ask(1, SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        told = await client.ask(2, SaslAuthenticateRequest(auth_bytes=b"x"))
        assert told.error_code == ErrorCode.ILLEGAL_SASL_STATE
        await client.ask(4, HeartbeatRequest())


async def test_any_chunks_any_order_of_arrival() -> None:
    def frame(number: int) -> bytes:
        request = HeartbeatRequest(group_id="g" * (number % 3000))
        pieces = encode_request(Api.HEARTBEAT, 4, number, "c", request)
        return b"".join(bytes(piece) for piece in pieces)

    sizes: list[Callable[[int], int]] = [lambda n: 1 + n % 7, lambda n: 4096, lambda n: 65_537]
    data = b"".join(frame(number) for number in range(0, 3000, 37))
    async with served({Api.HEARTBEAT: ok}) as at:
        for size in sizes:
            client, position, turn = await at.client(), 0, 0
            while position < len(data):
                step = size(turn) if position < 5000 else 65_537
                client.writer.write(data[position : position + step])
                position, turn = position + step, turn + 1
                await client.writer.drain()
            for number in range(0, 3000, 37):
                assert decode_response(Api.HEARTBEAT, 4, await client.frame())[0] == number


async def test_a_request_that_comes_too_slowly_is_not_waited_for() -> None:
    async with served({Api.HEARTBEAT: ok}, stalled_s=0.3) as at:
        client, other = await at.client(), await at.client()
        client.writer.write((1000).to_bytes(4, "big"))
        [connection] = await connections(at, lambda each: each.is_in_request)
        async with asyncio.timeout(PATIENCE_S):
            while not connection.peer.is_gone:
                client.writer.write(b"x")
                await asyncio.sleep(0.05)
                at.listener._look()
        assert (await other.ask(4, HeartbeatRequest())).error_code == 0


async def connections(
    at: Served, is_wanted: Callable[[KafkaConnection], bool]
) -> list[KafkaConnection]:
    """Wait for connections of this kind."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := [each for each in at.shared.connections if is_wanted(each)]):
            await asyncio.sleep(0.002)
    return found


async def test_parts_of_requests_take_room_only_for_what_has_come() -> None:
    async with served({Api.PRODUCE: produced, Api.HEARTBEAT: ok}, held_bytes_max=1 << 20) as at:
        for _ in range(50):
            client = await at.client()
            client.writer.write((50 * 1024 * 1024).to_bytes(4, "big") + b"part")
        async with asyncio.timeout(PATIENCE_S):
            while sum(each.is_in_request for each in at.shared.connections) < 50:
                await asyncio.sleep(0.002)
        assert at.shared.room._admission.held_bytes == 0
        other = await at.client()
        await other.ask(9, ProduceRequest(transactional_id="x" * 30_000, acks=1))


async def produced(call: KafkaCall, request: Any) -> ProduceResponse:
    return ProduceResponse()


async def test_clients_that_do_not_read_leave_a_bounded_amount_unread() -> None:
    async def much(call: KafkaCall, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error_message="m" * (2**15 - 1), host="h" * 2**14)

    count, size = 60, 2**15 + 2**14
    async with served({Api.FIND_COORDINATOR: much, Api.HEARTBEAT: ok}) as at:
        lazy = [await at.client() for _ in range(count)]
        for client in lazy:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(400):
                client.send(2, FindCoordinatorRequest(key="k"))
        other = await at.client()
        seen = -1
        while seen != at.shared.unsent_bytes:
            seen = at.shared.unsent_bytes
            for _ in range(20):
                await other.ask(4, HeartbeatRequest())
            await asyncio.sleep(0.2)
        little = UNSENT_LITTLE_BYTES + REQUESTS_MAX * size
        assert UNSENT_BYTES_ALL_MAX < seen < UNSENT_BYTES_ALL_MAX + count * little
        assert seen < count * 400 * size / 4
        for client in lazy:
            client.writer.transport.abort()
        await at.quiet(1)
        assert at.shared.unsent_bytes == 0


async def test_a_long_request_is_decoded_in_a_thread_and_answered_in_turn() -> None:
    async with served({Api.FIND_COORDINATOR: found, Api.HEARTBEAT: ok}) as at:
        client = await at.client()
        keys = [f"group-{number}" for number in range(20_000)]
        first = client.send(4, FindCoordinatorRequest(coordinator_keys=keys))
        second = client.send(4, HeartbeatRequest())
        assert decode_response(Api.FIND_COORDINATOR, 4, await client.frame())[0] == first
        assert decode_response(Api.HEARTBEAT, 4, await client.frame())[0] == second
