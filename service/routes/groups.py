"""Routes about consumer groups. A route translates; it does not decide."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.groups.assignors import TopicPartition
from service.groups.coordinator import Beat, Coordinator, check_generation
from service.groups.offsets import Offsets
from service.groups.progress import Progress, Reset
from service.groups.state import Group, Member
from service.http.access_log import request_id_of
from service.http.bodies.fields import Partition
from service.http.deadlines import wait_s
from service.http.json_requests import read_json
from service.http.records_response import RecordsResponse, shares_of
from service.http.requests import JSON, Query
from service.log.gateway import Gateway, Position
from service.routes.bodies.groups import (
    BeatAnswer,
    BeatBody,
    CommitAnswer,
    CommittedOffset,
    CommittedOffsets,
    GroupInfo,
    GroupLag,
    GroupList,
    GroupSummary,
    JoinAnswer,
    JoinBody,
    MemberInfo,
    OffsetsBody,
    Place,
    PollBody,
    ResetAnswer,
    ResetBody,
)
from service.routes.multi_fetch import FetchBody, MultiFetch, Wanted
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller, caller_of
from storage.errors import InvalidRequest, UnknownGroup
from storage.reading.fetched import Data

POLL_WAIT_SHARE: Final = 3
"""A poll waits at most the session timeout divided by this, since it beats only at its start."""


_JOIN: Final = msgspec.json.Decoder(JoinBody)
_BEAT: Final = msgspec.json.Decoder(BeatBody)
_POLL: Final = msgspec.json.Decoder(PollBody)
_COMMIT: Final = msgspec.json.Decoder(OffsetsBody)
_RESET: Final = msgspec.json.Decoder(ResetBody)


class GroupRoutes:
    def __init__(
        self,
        gateway: Gateway,
        coordinator: Coordinator,
        offsets: Offsets,
        several: MultiFetch,
    ) -> None:
        self._gateway = gateway
        self._coordinator = coordinator
        self._offsets = offsets
        self._several = several
        self._progress = Progress(gateway, coordinator, offsets)

    async def join(self, request: Request) -> Response:
        """Become a member of a group, which is made by its first member."""
        Query(request)
        body = await read_json(request, self._gateway, _JOIN)
        caller = caller_of(request.scope)
        for topic in body.topics:
            caller.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        member = Member(
            topics=tuple(dict.fromkeys(body.topics)),
            pattern=body.topics_pattern,
            instance_id=body.instance_id,
            session_timeout_ms=body.session_timeout_ms,
            client=body.client_id,
            name_prefix=caller.name_prefix if body.topics_pattern is not None else "",
        )
        beat = await self._coordinator.join(_group(request), member, body.assignor)
        return _answer(
            request,
            JoinAnswer(
                member_id=beat.member_id,
                generation=beat.generation,
                assignment=_visible(request, beat.assignment),
                revoke=_visible(request, beat.revoke),
            ),
        )

    async def heartbeat(self, request: Request) -> Response:
        """Keep the session; learn the generation, what to read and what to give up."""
        Query(request)
        body = await read_json(request, self._gateway, _BEAT)
        beat = await self._beat(request, body.generation, body.owned)
        return _answer(request, _beat(request, beat))

    async def poll(self, request: Request) -> Response:
        """Heartbeat, and fetch what is assigned from where the caller is."""
        Query(request)
        body = await read_json(request, self._gateway, _POLL)
        wait_ms_max = self._gateway.settings.wait_ms_max
        if body.max_wait_ms > wait_ms_max:
            raise InvalidRequest(f"max_wait_ms: must be from 0 to {wait_ms_max}")
        group_id = _group(request)
        beat = await self._beat(request, body.generation, body.owned)
        check_generation(group_id, body.generation, beat.generation)
        items: list[Data] = [b"[]"]
        shares = shares_of(request)
        wait_ms = min(body.max_wait_ms, beat.session_timeout_ms // POLL_WAIT_SHARE)
        wait_ms = int(1000 * wait_s(request, wait_ms / 1000, self._gateway.world.monotonic_s()))
        caller = caller_of(request.scope)
        # A pattern matches any topic, also those that the caller may not know of.
        assignment = [place for place in beat.assignment if _sees(caller, place[0])]
        if assignment:
            wanted, resets = await self._wanted(group_id, assignment, body)
            fetch = FetchBody(
                partitions=wanted,
                max_records=body.max_records,
                max_bytes=body.max_bytes,
                min_bytes=body.min_bytes,
                max_wait_ms=wait_ms,
                value_format=body.value_format,
            )
            items = await self._several.fetch(fetch, request_id_of(request), shares, caller, resets)
        elif wait_ms:
            # Nothing is assigned: wait, so that the client does not poll in a tight loop.
            await self._gateway.world.sleep(min(wait_ms, 1000) / 1000)
        head = msgspec.json.encode(caller.outward(_beat(request, beat)))
        return RecordsResponse([head[:-1], b',"partitions":', *items, b"}"], JSON, shares)

    async def _beat(self, request: Request, generation: int, owned: list[Place] | None) -> Beat:
        pairs = None if owned is None else [place.pair() for place in owned]
        return await self._coordinator.heartbeat(
            _group(request), _member(request), generation, pairs
        )

    async def _wanted(
        self, group_id: str, assignment: Sequence[TopicPartition], body: PollBody
    ) -> tuple[list[Wanted], dict[TopicPartition, Position]]:
        """Return where to read: the caller's position, else the committed offset, else the reset.

        Also where to continue if a committed offset is no longer, or not yet, in the log.
        """
        given = {(spot.topic, spot.partition): spot.offset for spot in body.positions}
        missing = [place for place in assignment if place not in given]
        committed = await self._offsets.read_some(group_id, missing) if missing else {}
        reset = None if body.auto_offset_reset == "none" else body.auto_offset_reset
        # Start with a random partition: one that is always full would starve the others.
        turn = int(self._gateway.world.random() * len(assignment))
        wanted = []
        for topic, partition in [*assignment[turn:], *assignment[:turn]]:
            offset = given.get((topic, partition), committed.get((topic, partition)))
            if offset is None and reset is None:
                raise InvalidRequest(
                    f"{topic}/{partition} has no position and no committed offset, and"
                    " auto_offset_reset is none: give its position"
                )
            at = None if offset is not None else reset
            wanted.append(Wanted(topic=topic, partition=partition, offset=offset, at=at))
        return wanted, {} if reset is None else dict.fromkeys(committed, Position(at=reset))

    async def leave(self, request: Request) -> Response:
        """Leave the group; what the member read goes to others at once."""
        Query(request)
        await self._coordinator.leave(_group(request), _member(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def commit(self, request: Request) -> Response:
        """Record offsets, as a member, or from outside while the group has none."""
        Query(request)
        body = await read_json(request, self._gateway, _COMMIT)
        for topic in {one.topic for one in body.offsets}:
            caller_of(request.scope).require(Operation.READ, ResourceType.TOPIC, topic)
        commits, committer = body.commits()
        await self._offsets.commit(_group(request), commits, committer)
        return _answer(request, CommitAnswer(body.offsets))

    async def committed(self, request: Request) -> Response:
        """Return what the group has committed."""
        given = Query(request).text("topic")
        caller = caller_of(request.scope)
        topic = None if given is None else caller.inner_name(given)
        found = [
            CommittedOffset(
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                metadata=one.metadata,
                committed_ms=one.committed_ms,
            )
            for one in await self._offsets.read(_group(request))
            if (topic is None or one.topic == topic) and _sees(caller, one.topic)
        ]
        return _answer(request, CommittedOffsets(found))

    async def lag(self, request: Request) -> Response:
        """Return how far behind the group is, in records and seconds."""
        Query(request)
        caller = caller_of(request.scope)
        lags = await self._progress.lag(_group(request))
        lags = [lag for lag in lags if _sees(caller, lag.topic)]
        return _answer(request, GroupLag(_group(request), sum(lag.lag for lag in lags), lags))

    async def reset(self, request: Request) -> Response:
        """Move committed offsets; with dry_run only say where to."""
        Query(request)
        body = await read_json(request, self._gateway, _RESET)
        caller = caller_of(request.scope)
        value = {"timestamp": body.timestamp, "offset": body.offset, "shift": body.shift}
        if body.to in value and value[body.to] is None:
            raise InvalidRequest(f"{body.to}: is missing, and to says {body.to!r}")
        moved = await self._progress.reset(
            _group(request),
            Reset(
                to=body.to,
                value=value.get(body.to) or 0,
                topics=body.topics,
                partitions=[place.pair() for place in body.partitions],
            ),
            dry_run=body.dry_run,
            check=lambda topic: _check_reset(caller, topic, body),
        )
        if not body.dry_run:
            caller.changed(Operation.ALTER, ResourceType.GROUP, _group(request))
        return _answer(request, ResetAnswer(body.dry_run, moved))

    async def list_groups(self, request: Request) -> Response:
        """List all groups."""
        Query(request)
        groups = await self._coordinator.all()
        caller = caller_of(request.scope)
        found = [
            GroupSummary(**_summary(name, group))
            for name, group in groups.items()
            if caller.allows(Operation.DESCRIBE, ResourceType.GROUP, name)
        ]
        return _answer(request, GroupList(found))

    async def describe(self, request: Request) -> Response:
        """Return a group, its members and what each of them reads."""
        Query(request)
        known = await self._coordinator.read(_group(request))
        if known.version is None:
            raise UnknownGroup(f"there is no group {_group(request)!r}")
        group, caller = known.group, caller_of(request.scope)
        members = [
            MemberInfo(
                member_id=member_id,
                instance_id=member.instance_id,
                client_id=member.client,
                protocol=group.protocol_of(member_id),
                topics=[topic for topic in member.topics if _sees(caller, topic)],
                topics_pattern=member.pattern,
                session_timeout_ms=member.session_timeout_ms,
                assignment=_visible(request, group.assignment(member_id)),
                revoke=_visible(request, group.revocations(member_id)),
            )
            for member_id, member in sorted(group.members.items())
        ]
        return _answer(request, GroupInfo(**_summary(_group(request), group), members=members))

    async def delete(self, request: Request) -> Response:
        """Delete a group that has no members, with all it has committed."""
        Query(request)
        await self._coordinator.delete(_group(request))
        caller_of(request.scope).changed(Operation.DELETE, ResourceType.GROUP, _group(request))
        return Response(status_code=HTTPStatus.NO_CONTENT)


def _group(request: Request) -> str:
    return str(request.path_params["group"])


def _member(request: Request) -> str:
    return str(request.path_params["member"])


def _places(places: Sequence[TopicPartition]) -> list[Partition]:
    return [Partition(topic, partition) for topic, partition in places]


def _visible(request: Request, places: Sequence[TopicPartition]) -> list[Partition]:
    """Return the partitions of topics that the caller may know of: a pattern matches any topic."""
    caller = caller_of(request.scope)
    return _places([place for place in places if _sees(caller, place[0])])


def _check_reset(caller: Caller, topic: str, body: ResetBody) -> None:
    """Raise unless the caller may read `topic`; without its name, if it may not know it."""
    decision = caller.decide(Operation.READ, ResourceType.TOPIC, topic)
    if not decision.allowed:
        is_named = topic in {*body.topics, *(place.topic for place in body.partitions)}
        called = None if is_named or _sees(caller, topic) else "that the group has committed"
        raise caller.refusal(Operation.READ, ResourceType.TOPIC, topic, decision, called)


def _sees(caller: Caller, topic: str) -> bool:
    return caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _beat(request: Request, beat: Beat) -> BeatAnswer:
    assignment, revoke = _visible(request, beat.assignment), _visible(request, beat.revoke)
    return BeatAnswer(beat.generation, assignment, revoke)


def _summary(name: str, group: Group) -> dict[str, Any]:
    return {
        "group": name,
        "state": group.state,
        "kind": group.kind,
        "protocols": sorted({group.protocol_of(member_id) for member_id in group.members}),
        "protocol_type": group.protocol_type,
        "generation": group.generation,
        "assignor": group.agreed_assignor,
        "member_count": len(group.members),
    }


def _answer(request: Request, body: msgspec.Struct) -> Response:
    named = caller_of(request.scope).outward(body)
    return Response(msgspec.json.encode(named), media_type=JSON)
