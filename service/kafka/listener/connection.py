"""One connection: requests come in, their handlers overlap, replies leave in order.

    bytes ──▶ FrameReader ──▶ request ──▶ handler (a task) ──▶ queue of replies ──▶ bytes
                                                                 first come, first out

Reading stops, and nothing is refused, while

- `REQUESTS_MAX` requests or `BYTES_UNDER_WAY_MAX` bytes of them are under way,
- the client does not read its replies,
- there is no room for the request that comes (`Room`),
- the client was told to wait (`throttle_time_ms`), or who it is, or may do, is being looked up.

A task exists only for a request. What goes wrong here ends this connection, and no other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from service.kafka.call import KafkaCall, Peer
from service.kafka.listener.dispatch import BadRequest, Dispatch, Request, SentReply
from service.kafka.listener.framing import BadFrame, FrameReader
from service.kafka.listener.room import SMALL_BYTES_MAX, Room, RoomClaim
from service.kafka.listener.session import PeerSession, Refused
from service.kafka.protocol.apis import Api
from service.process.wrong_protocol import MISTAKES, Spoken, http_answer, spoken
from service.security.caller import ANYONE, Caller
from storage.errors import RiachoError
from storage.tasks import begin

log = logging.getLogger("riacho.kafka")

REQUESTS_MAX: Final = 16
"""Requests of one connection under way."""

UNSENT_BYTES_MAX: Final = 8 * 1024 * 1024
"""No more requests are begun while the client has not read this much."""

UNSENT_BYTES_ALL_MAX: Final = 64 * 1024 * 1024
"""What all clients together may leave unread before each of them may leave only a little."""

UNSENT_LITTLE_BYTES: Final = 64 * 1024
"""What a client may leave unread that has not said who it is, or if all have left too much."""

SLOW_BYTES_S: Final = 4 * 1024
"""A client that sends the rest of a request more slowly keeps its place for nobody's good."""

SASL_KEYS: Final = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})

THROTTLE_MS_MAX: Final = 60_000

MISTAKEN: Final = {
    Spoken.HTTP: (
        "speaks HTTP to the port of Kafka's clients: HTTP is served at that of --port, by default"
        " 8080"
    ),
    Spoken.TLS: (
        "speaks TLS to a port without it: its security.protocol should be PLAINTEXT, or"
        " SASL_PLAINTEXT if security is on; --tls-cert turns TLS on"
    ),
}

EARLY_LENGTH_MAX: Final = 32 * 1024
"""Of a request before the client has said who it is. It takes no room from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """ConnectionLimits of connections; operators may change some of them."""

    request_bytes_max: int = 100 * 1024 * 1024
    connections_max: int = 10_000
    connections_per_address_max: int = 1_000
    idle_s: float = 600
    login_s: float = 30
    """Within which a client says who it is, where it must."""
    stalled_s: float = 60
    """How long a part of a request is kept without another byte of it."""

    @property
    def bytes_under_way_max(self) -> int:
        return 2 * self.request_bytes_max


@dataclass(slots=True)
class Shared:
    """What all connections of a listener have in common."""

    dispatch: Dispatch
    room: Room
    limits: ConnectionLimits
    monotonic_s: Callable[[], float]
    new_session: Callable[[Peer, Any], PeerSession]
    """For a peer, and the TLS connection to it, if there is one."""
    protocol: str = "PLAINTEXT"
    http_url: str = ""
    """What a client is told that speaks HTTP; empty: it has to know by itself."""
    connections: set["KafkaConnection"] = field(default_factory=set)
    by_address: dict[str, int] = field(default_factory=dict)
    unsent_bytes: int = 0
    """In replies that clients have not read."""
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(64 * 1024)))
    """What connections read into. They never do so at once: reading into it and taking what was
    read is one step of the loop."""
    is_draining: bool = False

    def admits(self, host: str) -> bool:
        """Count a connection from `host`, unless there are too many."""
        count = self.by_address.get(host, 0)
        limits = self.limits
        if count >= limits.connections_per_address_max:
            return False
        if len(self.connections) >= limits.connections_max:
            return False
        self.by_address[host] = count + 1
        return True

    def left(self, host: str) -> None:
        self.by_address[host] -= 1
        if not self.by_address[host]:
            del self.by_address[host]


@dataclass(slots=True, eq=False)
class _Pending:
    """A request under way."""

    size_bytes: int
    claim: RoomClaim | None
    reply: SentReply | None = None
    reply_bytes: int = 0
    is_done: bool = False
    when_sent: Sequence[Callable[[], None]] = ()


class KafkaConnection(asyncio.BufferedProtocol):
    __slots__ = (
        "_barriers",
        "_bytes_under_way",
        "_claim",
        "_early_eof",
        "_is_admitted",
        "_is_going_on",
        "_is_reading",
        "_muted",
        "_part_bytes",
        "_part_s",
        "_pending",
        "_queued_bytes",
        "_reader",
        "_shared",
        "_tasks",
        "_transport",
        "_unsent",
        "_unsent_bytes",
        "began_s",
        "last_s",
        "peer",
        "session",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._pending: deque[_Pending] = deque()
        self._bytes_under_way = 0
        self._claim: RoomClaim | None = None
        """Of the request of which a part has come."""
        self._barriers = 0
        """What must end before the next request begins."""
        self._muted: asyncio.TimerHandle | None = None
        self._unsent: list[Callable[[], None]] = []
        """To be called when everything written has left."""
        self._queued_bytes = 0
        """Of replies that wait for others before them."""
        self._unsent_bytes = 0
        """Of replies that are made and have not left."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reading = True
        self._is_admitted = False
        self._is_going_on = False
        self._early_eof = False
        """Whether the client will send no more, and waits for replies."""
        self.began_s = self.last_s = self._part_s = shared.monotonic_s()
        """When the part of a request began to come, or was read on."""
        self._part_bytes = 0

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        shared = self._shared
        found = transport.get_extra_info("peername") or ("", 0)
        host = str(found[0])
        # A socket of both families gives IPv4 addresses this form, and an ACL does not.
        host = host.removeprefix("::ffff:") if "." in host else host
        self.peer = Peer(host=host, port=int(found[1]), listener=shared.protocol)
        self.session = shared.new_session(self.peer, transport.get_extra_info("ssl_object"))
        self._reader = FrameReader(shared.scratch, self._length_max(), self._grow)
        self._is_admitted = not shared.is_draining and shared.admits(host)
        if not self._is_admitted:
            log.warning("kafka: refused a connection from %s: there are too many", host)
            self._transport.abort()
            return
        # With no room in the buffer, `resume_writing` says that all has left.
        self._transport.set_write_buffer_limits(0, 0)
        shared.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        shared = self._shared
        shared.connections.discard(self)
        self.peer.is_gone = True
        if self._is_admitted:
            shared.left(self.peer.host)
        if self._claim is not None:
            shared.room.release(self._claim)
            self._claim = None
        if self._muted is not None:
            self._muted.cancel()
        # Handlers go on: what was begun is finished, and a cancelled append would not be undone.
        self._is_reading = False
        self._barriers += 1
        for pending in self._pending:
            if pending.is_done:
                _call(pending.when_sent)
        self._pending.clear()
        self._count_unsent(0)
        self._all_sent()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_s = self._shared.monotonic_s()
        if self._reader.is_between:
            self._begin_part()
        self._part_bytes += nbytes
        self._reader.received(nbytes)
        self._go_on()
        self._reader.keep()

    def eof_received(self) -> bool:
        self._early_eof = True
        if not self._pending:
            return False
        # The other direction may still be open: send what is under way, then close.
        return self._transport.get_extra_info("ssl_object") is None

    def pause_writing(self) -> None:
        """Something has not left yet: `_may_begin` looks at how much."""

    def resume_writing(self) -> None:
        self.last_s = self._shared.monotonic_s()
        self._all_sent()
        if self._transport.is_closing():
            self._count_unsent(0)
        self._go_on()

    # Requests

    @property
    def is_quiet(self) -> bool:
        """Whether no request is under way, and no part of one has come."""
        return not self._pending and self._reader.is_between

    @property
    def is_in_request(self) -> bool:
        """Whether a part of a request has come, and the client is to send the rest."""
        return self._is_reading and not self._reader.is_between

    def is_stalled(self, now_s: float) -> bool:
        """Whether the client does not send the rest of a request, or hardly."""
        stalled_s = self._shared.limits.stalled_s
        slow_s = self._part_bytes / SLOW_BYTES_S
        return self.is_in_request and (
            now_s - self.last_s > stalled_s or now_s - self._part_s > stalled_s + slow_s
        )

    @property
    def is_unread(self) -> bool:
        """Whether the client has not read all that was sent to it."""
        return self._transport.get_write_buffer_size() > 0

    def close(self, why: str = "", level: int = logging.DEBUG) -> None:
        """Close the connection, after what was written has left."""
        if why:
            log.log(level, "kafka: closed the connection of %s: %s", self.peer.host, why)
        self._barriers += 1
        self._transport.close()

    def abort(self) -> None:
        """Close the connection, whether or not everything has left."""
        self._transport.abort()

    def _begin_part(self) -> None:
        self._part_s, self._part_bytes = self.last_s, 0

    def _length_max(self) -> int:
        is_trusted = self.session.is_trusted
        return self._shared.limits.request_bytes_max if is_trusted else EARLY_LENGTH_MAX

    def _grow(self, size_bytes: int, length: int) -> bool:
        if size_bytes <= SMALL_BYTES_MAX or not self.session.is_trusted:
            return True
        if self._claim is None:
            self._claim = self._shared.room.claim()
        return self._shared.room.grow(self._claim, size_bytes, self._go_on)

    def _may_begin(self) -> bool:
        self._count_unsent(self._queued_bytes + self._transport.get_write_buffer_size())
        return (
            not self._barriers
            and self._muted is None
            and len(self._pending) < REQUESTS_MAX
            and self._bytes_under_way <= self._shared.limits.bytes_under_way_max
            and self._unsent_bytes <= self._unsent_max()
        )

    def _unsent_max(self) -> int:
        is_scarce = self._shared.unsent_bytes > UNSENT_BYTES_ALL_MAX
        if is_scarce or not self.session.is_trusted:
            return UNSENT_LITTLE_BYTES
        return UNSENT_BYTES_MAX

    def _go_on(self) -> None:
        """Begin the requests that have come, as far as limits allow; read on if they do."""
        if self._is_going_on or self._transport.is_closing():
            return
        self._is_going_on = True
        try:
            self._begin_all()
        except BadFrame as error:
            self._misread(error)
            return
        except BadRequest as error:
            self.close(str(error), logging.INFO)
            return
        finally:
            self._is_going_on = False
        reads = self._may_begin() and not self._reader.is_blocked
        if reads is not self._is_reading and not self._early_eof:
            self._is_reading = reads
            if reads:
                self.last_s = self._shared.monotonic_s()
                self._begin_part()
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _misread(self, error: BadFrame) -> None:
        """Close the connection of a client that speaks something else, and say what."""
        kind = spoken(error.head)
        if kind is None or kind not in MISTAKEN:
            self.close(str(error), logging.INFO)
            return
        MISTAKES.note(self.peer.host, MISTAKEN[kind])
        if kind is Spoken.HTTP:
            where = self._shared.http_url or "another port"
            self._transport.write(
                http_answer(f"this port is for Kafka's clients; HTTP is served at {where}")
            )
        self.close()

    def _begin_all(self) -> None:
        while self._may_begin():
            frame = self._reader.next()
            if frame is None:
                return
            claim, self._claim = self._claim, None
            if claim is not None:
                self._shared.room.whole(claim)
            self._begin(frame, claim)

    def _begin(self, frame: memoryview, claim: RoomClaim | None) -> None:
        self._begin_part()
        pending = _Pending(len(frame), claim)
        self._pending.append(pending)
        self._bytes_under_way += len(frame)
        dispatch, session = self._shared.dispatch, self.session
        request = dispatch.request(frame)
        if request.key == Api.API_VERSIONS:
            self._serve(request, pending, ANYONE)
            return
        if request.key in SASL_KEYS:
            self._alone(self._answer_login(request, pending))
            return
        if not session.is_authenticated:
            self._alone(self._admit(request, pending))
            return
        caller = session.caller(request.client_id)
        if caller is None:
            self._alone(self._renew(request, pending))
        else:
            self._serve(request, pending, caller)

    def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin no other request until `work` has ended."""
        self._barriers += 1

        async def run() -> None:
            try:
                await work
            finally:
                self._barriers -= 1
            self._go_on()

        self._task(run())

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = begin(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            self.abort()
            return
        error = task.exception()
        if isinstance(error, BadRequest | Refused):
            self.close(str(error), logging.INFO)
        elif isinstance(error, RiachoError):
            self.close(f"{error.code}: {error}", logging.WARNING)
        elif error is not None:
            log.error("kafka: a request of %s failed", self.peer.host, exc_info=error)
            self.close()

    async def _answer_login(self, request: Request, pending: _Pending) -> None:
        dispatch = self._shared.dispatch
        response, is_last = await self.session.answer(request.version, dispatch.decoded(request))
        self._reader.length_max = self._length_max()
        self._done(pending, dispatch.encoded(request, response))
        if is_last:
            self.close()

    async def _admit(self, request: Request, pending: _Pending) -> None:
        """Begin the first request of a client that its certificate may have named."""
        await self.session.by_certificate()
        self._reader.length_max = self._length_max()
        await self._renew(request, pending)

    async def _renew(self, request: Request, pending: _Pending) -> None:
        self._serve(request, pending, await self.session.renewed(request.client_id))

    def _serve(self, request: Request, pending: _Pending, caller: Caller) -> None:
        call = KafkaCall(
            key=request.key,
            version=request.version,
            client_id=request.client_id,
            caller=caller,
            peer=self.peer,
        )
        self._task(self._served(request, call, pending))

    async def _served(self, request: Request, call: KafkaCall, pending: _Pending) -> None:
        pending.when_sent = call.when_sent
        try:
            reply = await self._shared.dispatch.reply(request, call)
        finally:
            if pending.claim is not None:
                self._shared.room.release(pending.claim)
                pending.claim = None
        self._done(pending, reply)

    # Replies

    def _done(self, pending: _Pending, reply: SentReply | None) -> None:
        """Take the reply of a request; None: there is none to send."""
        if pending.claim is not None:
            self._shared.room.release(pending.claim)
            pending.claim = None
        pending.reply, pending.is_done = reply, True
        if self._transport.is_closing():
            _call(pending.when_sent)
            return
        if reply is not None:
            pending.reply_bytes = sum(map(len, reply.pieces))
            self._queued_bytes += pending.reply_bytes
            if reply.throttle_ms > 0:
                self._mute(reply.throttle_ms)
        while self._pending and self._pending[0].is_done:
            self._send(self._pending.popleft())
        if self._early_eof and not self._pending:
            self._transport.close()
        else:
            self._go_on()

    def _send(self, pending: _Pending) -> None:
        self._bytes_under_way -= pending.size_bytes
        self._queued_bytes -= pending.reply_bytes
        if pending.reply is not None:
            self._unsent.extend(pending.when_sent)
            self._transport.writelines(pending.reply.pieces)
            self.last_s = self._shared.monotonic_s()
            if not self._transport.get_write_buffer_size():
                self._all_sent()
        else:
            _call(pending.when_sent)

    def _all_sent(self) -> None:
        unsent, self._unsent = self._unsent, []
        _call(unsent)

    def _count_unsent(self, size_bytes: int) -> None:
        self._shared.unsent_bytes += size_bytes - self._unsent_bytes
        self._unsent_bytes = size_bytes

    def _mute(self, throttle_ms: int) -> None:
        """Begin no request for a while; the client knows, but need not obey."""

        def end() -> None:
            self._muted = None
            self._go_on()

        if self._muted is not None:
            self._muted.cancel()
        delay_s = min(throttle_ms, THROTTLE_MS_MAX) / 1000
        self._muted = asyncio.get_running_loop().call_later(delay_s, end)


def _call(when_sent: Sequence[Callable[[], None]]) -> None:
    for each in when_sent:
        each()
