"""What both consumers share: their settings, and everything that does not wait."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from riacho.consumer.assignment import Begin
from riacho.consumer.commits import Commits
from riacho.consumer.fetching import Fetching, FetchSettings
from riacho.consumer.group_calls import (
    GroupClient,
    MemberSettings,
    OffsetsGiven,
    Strategy,
    Subscription,
)
from riacho.consumer.group_offsets import GroupOffsets
from riacho.consumer.log_calls import FetchLimits
from riacho.consumer.membership import Call, Membership
from riacho.consumer.positions import Positions
from riacho.consumer.session import Session, SessionPace
from riacho.http.gateway import gateway_url
from riacho.http.identity import Basic, ClientCert, Credentials
from riacho.http.retries import Backoff
from riacho.records import TopicPartition, topic_names, topic_partitions

if TYPE_CHECKING:
    import httpx

MIB: Final = 1024 * 1024
RESETS: Final = ("earliest", "latest", "none")
STRATEGIES: Final = ("sticky", "range", "roundrobin")

OnRebalance: TypeAlias = Callable[[list[TopicPartition]], Any]
"""Takes the partitions that were assigned, revoked or lost. May be async for `AsyncConsumer`."""


class Consuming(Positions):
    def __init__(
        self,
        url: str | None = None,
        *,
        group_id: str | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: float = 5_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: float = 3_000,
        max_poll_interval_ms: float = 300_000,
        group_instance_id: str | None = None,
        partition_assignment_strategy: Strategy | None = None,
        client_id: str = "",
        max_poll_records: int = 500,
        fetch_max_bytes: int = 1 * MIB,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        request_timeout_ms: float = 30_000,
        default_api_timeout_ms: float = 60_000,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1000,
        metadata_max_age_ms: float = 300_000,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare to read from the gateway at `url`; nothing is sent yet.

        `url`: where the gateway is; None means `RIACHO_URL`, else http://127.0.0.1:8080.
        `auto_offset_reset`: where to begin, and where to continue when the position is no
        longer in the log: "earliest", "latest", or "none" to raise an error.
        `max_poll_records`: maximum number of records that one `poll` returns.
        `fetch_max_bytes`: maximum bytes per partition and request.
        `fetch_min_bytes`, `fetch_max_wait_ms`: the gateway answers when it has this many bytes,
        or after this time.
        `default_api_timeout_ms`: `poll` and `commit` retry an unreachable gateway for this
        time, and then raise.
        `metadata_max_age_ms`: maximum time until new partitions of subscribed topics are
        noticed.
        `token`, `basic`, `ca_file`, `client_cert`: who this client is, and whom it trusts: a key or
        token; (user, password); a file of authorities; a certificate, as one file, or (certificate,
        key), or (certificate, key, password). None: as the URL says (user:password@), or the
        environment: `RIACHO_TOKEN`, `RIACHO_USER`, `RIACHO_CA_FILE`, `RIACHO_CLIENT_CERT`, ….
        `transport`: an httpx transport, for tests and unusual networks.

        With `group_id`, consumers of one group share the partitions of their topics:

        `enable_auto_commit`, `auto_commit_interval_ms`: commit what earlier polls returned,
        at this interval, when partitions are given up, and at `close`.
        `session_timeout_ms`: a consumer without heartbeats for this time loses its partitions.
        `heartbeat_interval_ms`: time between heartbeats, which are sent in the background.
        `max_poll_interval_ms`: a program that does not `poll` for this time leaves the group.
        `group_instance_id`: a name that survives a restart. `close` then does not leave, and
        a consumer with the same name that returns within the session keeps its partitions.
        `partition_assignment_strategy`: "sticky" (the default of a group: even, with few
        moves), "range" or "roundrobin". All members must agree.
        `client_id`: prefix of the member's name, for operators.
        """
        if auto_offset_reset not in RESETS:
            raise ValueError(f"auto_offset_reset is one of {', '.join(RESETS)}")
        if partition_assignment_strategy not in (None, *STRATEGIES):
            names = ", ".join(STRATEGIES)
            raise ValueError(f"partition_assignment_strategy is one of {names}")
        if not 0 < heartbeat_interval_ms * 2 <= session_timeout_ms:
            raise ValueError("a session must last for two heartbeat_interval_ms at least")
        if max_poll_records < 1:
            raise ValueError("max_poll_records is 1 or more, or nothing would ever be returned")
        backoff = Backoff(first_ms=retry_backoff_ms, most_ms=retry_backoff_max_ms)
        settings = FetchSettings(
            reset=auto_offset_reset,
            limits=FetchLimits(
                max_bytes=fetch_max_bytes,
                min_bytes=fetch_min_bytes,
                max_wait_ms=fetch_max_wait_ms,
            ),
            records_waiting_min=max_poll_records,
            request_timeout_s=request_timeout_ms / 1000,
            trouble_max_s=default_api_timeout_ms / 1000,
            metadata_age_max_s=metadata_max_age_ms / 1000,
            backoff=backoff,
        )
        self._max_poll_records = max_poll_records
        self._fetching = Fetching(
            gateway_url(url),
            settings,
            transport,
            Credentials(token=token, basic=basic, ca_file=ca_file, client_cert=client_cert),
        )
        self._is_closed = False
        self._callbacks: dict[str, OnRebalance | None] = {}
        self._member: Membership | None = None
        if group_id is not None:
            member = MemberSettings(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                instance_id=group_instance_id,
                strategy=partition_assignment_strategy,
                client_id=client_id,
            )
            pace = SessionPace(
                heartbeat_interval_s=heartbeat_interval_ms / 1000,
                max_poll_interval_s=max_poll_interval_ms / 1000,
                trouble_max_s=default_api_timeout_ms / 1000,
                backoff=backoff,
            )
            auto_s = auto_commit_interval_ms / 1000 if enable_auto_commit else None
            self._join_group(member, pace, auto_s)
        super().__init__()

    def _join_group(
        self, settings: MemberSettings, pace: SessionPace, auto_interval_s: float | None
    ) -> None:
        fetching = self._fetching
        client = GroupClient(fetching.log.gateway, settings)
        self._commits = Commits(
            client,
            fetching.assignment,
            reset=fetching.settings.reset,
            auto_interval_s=auto_interval_s,
            timeout_s=pace.trouble_max_s,
            backoff=pace.backoff,
            wake=fetching.interrupt,
        )
        session = Session(client, fetching.assignment, pace, fetching.interrupt)
        self._member = Membership(session, fetching.assignment, self._commit_handed_out)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, given as (topic, partition).

        Partitions that were already assigned keep their position; the others begin where
        `auto_offset_reset` says. With a group, which then only keeps the offsets and must have
        no members, they begin at its committed offsets.
        """
        start: Begin = self._fetching.initial_start
        if self._member is not None:
            if self._member.session.is_managed:
                raise RuntimeError("unsubscribe, and poll once, before you assign partitions")
            start = "committed"
            self._member.subscribe(None)
        self._fetching.subscribe([])
        self._fetching.assignment.replace(topic_partitions(partitions), start)

    def subscribe(
        self,
        topics: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: OnRebalance | None = None,
        on_revoked: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Read all partitions of `topics`, including those added later.

        In a group: the share of them that the group assigns. `pattern` is a regular
        expression instead, which whole names of topics must match, including new ones. The
        callbacks are called inside `poll` and `close`:

        `on_assigned(partitions)`: these are read from now on, from the group's committed
        offsets unless the callback seeks elsewhere.
        `on_revoked(partitions)`: these are given up. No other member reads them until the
        callback returns, so it is the place to finish work and to commit.
        `on_lost(partitions)`: these may already belong to other members, because the session
        ended; what was not committed is read again there. Without it `on_revoked` is called.
        """
        names = topic_names(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("give topics or a pattern: one of them, and not both")
        self._callbacks = {
            "assigned": on_assigned,
            "revoked": on_revoked,
            "lost": on_lost or on_revoked,
        }
        if self._member is not None:
            if pattern is not None:
                re.compile(pattern)
            if not self._member.session.is_managed:
                self._fetching.assignment.replace([], "committed")
            self._fetching.is_managed = True
            self._member.subscribe(Subscription(tuple(names), pattern))
        elif pattern is not None or any(self._callbacks.values()):
            raise ValueError("a pattern and callbacks need a group; give group_id")
        else:
            self._fetching.subscribe(names)

    def unsubscribe(self) -> None:
        """Stop reading. A member gives up its partitions and leaves at the next poll."""
        if self._member is not None and self._member.session.is_managed:
            self._member.subscribe(None)
        else:
            self.assign([])

    def seek_to_committed(self, *partitions: tuple[str, int]) -> None:
        """Seek to the group's committed offsets; for all assigned partitions if none is named.

        For use after an aborted transaction: what it read is read again. The offsets are looked
        up when the consumer next polls.
        """
        session, commits = self._group
        places = topic_partitions(partitions) or self.assignment()
        commits.forget(places)
        self._seek_to("committed", places)
        session.has_news = True

    def transaction_offsets(self) -> GroupOffsets:
        """Return what `Producer.send_offsets` commits: the offsets after all returned records.

        Raises `ValueError` with auto-commit, which would commit outside the transaction.
        """
        session, commits = self._group
        if commits.is_automatic:
            raise ValueError(
                "offsets in a transaction need a consumer with enable_auto_commit=False"
            )
        return GroupOffsets(commits.group_id, commits.uncommitted(), session, commits)

    @property
    def _group(self) -> tuple[Session, Commits]:
        if self._member is None:
            raise RuntimeError("this consumer is in no group; give group_id")
        return self._member.session, self._commits

    def _note_poll(self, is_polling: bool) -> None:
        if self._member is not None:
            self._member.session.polling(is_polling)

    def _is_due(self) -> bool:
        """Whether the group requires a step before records are handed out."""
        return self._member is not None and (self._member.is_due() or self._commits.is_due())

    async def _advance(self) -> Call | None:
        """Do what the group requires; return the callback to make before the next step."""
        assert self._member is not None
        if (call := await self._member.advance()) is not None:
            self._commits.forget(call.partitions)
            return call
        self._commits.begin(self._member.session)
        return None

    async def _commit_handed_out(self, partitions: Sequence[TopicPartition]) -> None:
        session, commits = self._group
        await commits.commit_quietly(session, commits.handed_out(partitions))

    async def _closing(self, is_orderly: bool) -> Call | None:
        """Commit for the last time, and return the callback to make, if any."""
        if self._member is None:
            return None
        if is_orderly:
            await self._commit_handed_out(self.assignment())
        return await self._member.closing()

    async def _disconnect(self) -> None:
        if self._member is not None:
            await self._commits.finish()
            await self._member.close()
        await self._fetching.close()

    async def _commit(self, offsets: OffsetsGiven | None) -> None:
        session, commits = self._group
        await commits.commit(session, commits.given(offsets))

    async def _committed(self, partitions: Sequence[tuple[str, int]]) -> dict[TopicPartition, int]:
        _, commits = self._group
        committed = await commits.committed()
        asked = topic_partitions(partitions) or self.assignment()
        return {p: committed[p] for p in asked if p in committed}

    async def _position(self, topic: str, partition: int) -> int:
        if self._member is not None:
            await self._commits.settle_starts()
        place = self._fetching.assignment.place(TopicPartition(topic, partition))
        position = self._fetching.assignment.position(place.partition)
        if position is None:
            position = (await self._fetching.resolve(place)).offset
        assert position is not None, place
        return position
