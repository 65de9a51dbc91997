"""The calls about dead letters: which topics hold some, what is in them, sending them again."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.connect.dead_letters import listing
from service.connect.dead_letters.bodies import (
    DeadLetterTopics,
    LetterFilterBody,
    RedriveBody,
)
from service.connect.dead_letters.destinations import Destination, ToOrigin, ToSink, ToTopic
from service.connect.dead_letters.mending import mend_of
from service.connect.dead_letters.reading import everything
from service.connect.dead_letters.redrive import Redrive, RedriveOrder
from service.connect.tasks.items import DELETED, decode_connector
from service.groups.offsets import Offsets
from service.http.json_requests import read_json
from service.http.requests import JSON, Query
from service.log.gateway import Gateway
from service.security.acls import Operation, ResourceType
from service.security.caller import Caller, caller_of
from service.transactions.atomic import Atomic
from storage import keys
from storage.errors import InvalidRequest, UnknownTopicOrPartition

SHOWN = 50
SHOWN_MAX = 1000

_REDRIVE = msgspec.json.Decoder(RedriveBody)


class DeadLetterCalls:
    def __init__(self, gateway: Gateway, offsets: Offsets) -> None:
        self._gateway = gateway
        self._atomic = Atomic(gateway, offsets)

    async def list_topics(self, request: Request) -> Response:
        """List the topics of dead letters that connectors name."""
        Query(request)
        caller = caller_of(request.scope)
        found = await listing.connectors_with_letters(self._gateway)
        topics = [
            await listing.letter_topic(self._gateway, topic, of, caller.outer_name(topic))
            for topic, of in sorted(found.items())
            if caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ]
        return _answer(DeadLetterTopics(topics))

    async def summarize(self, request: Request) -> Response:
        """Count the letters of a topic by exception and origin."""
        Query(request)
        topic: str = request.path_params["topic"]
        shown_as = caller_of(request.scope).outer_name(topic)
        return _answer(await listing.summary_of(self._gateway, topic, shown_as))

    async def show(self, request: Request) -> Response:
        """Show letters of a topic."""
        query = Query(request)
        topic: str = request.path_params["topic"]
        wanted = LetterFilterBody(
            exception=query.text("exception"),
            origin=query.text("origin"),
            connector=query.text("connector"),
            stage=query.text("stage"),
            from_ms=query.integer("from_ms", 0, 1 << 62),
            to_ms=query.integer("to_ms", 0, 1 << 62),
            contains=query.text("contains"),
        )
        partition = query.integer("partition", 0, 1 << 31)
        offset = query.integer("offset", 0, 1 << 62)
        within = await everything(self._gateway, topic)
        if partition is not None:
            within = [each for each in within if each.partition >= partition]
        if within and offset is not None and within[0].partition == (partition or 0):
            within[0].offset = max(within[0].offset, offset)
        count = query.up_to("max", SHOWN, SHOWN_MAX)
        return _answer(await listing.shown(self._gateway, topic, wanted, within, count))

    async def redrive(self, request: Request) -> Response:
        """Send letters again, each once to the same destination."""
        Query(request)
        topic: str = request.path_params["topic"]
        body = await read_json(request, self._gateway, _REDRIVE)
        caller = caller_of(request.scope)
        destination = await self._destination(body, topic, caller)
        order = RedriveOrder(
            topic=topic,
            destination=destination,
            wanted=body.filter,
            mend=mend_of(body.transform, await self._prefix_of(topic, caller)),
            rate=body.rate,
            sent_max=body.max,
            is_dry=body.dry_run,
        )
        within = body.next
        if within is None:
            within = await everything(self._gateway, topic)
        found = await Redrive(self._gateway, self._atomic, order).run(within)
        found.destinations = {caller.outer_name(t): n for t, n in found.destinations.items()}
        return _answer(found)

    async def _prefix_of(self, topic: str, caller: Caller) -> str:
        """Return the prefix of the tenant whose connectors write their letters there."""
        if caller.name_prefix:
            return caller.name_prefix
        connectors = (await listing.connectors_with_letters(self._gateway)).get(topic, [])
        prefixes = {each.name_prefix for each in connectors}
        return prefixes.pop() if len(prefixes) == 1 else ""

    async def _destination(self, body: RedriveBody, letters: str, caller: Caller) -> Destination:
        kind, _, name = body.to.partition(":")
        if body.to == "origin":
            return ToOrigin(self._gateway, caller, await self._prefix_of(letters, caller))
        if kind == "topic" and name:
            topic = caller.inner_name(name)
            caller.require_topic(Operation.WRITE, topic)
            await self._gateway.topics.get(topic)
            return ToTopic(self._gateway, caller, topic)
        if kind == "sink" and name:
            connector = caller.inner_name(name)
            caller.require(Operation.ALTER, ResourceType.CONNECTOR, connector)
            sink = ToSink(self._gateway, connector, await self._sink_prefix(connector, name))
            if not body.dry_run:
                await sink.prepare()
            return sink
        raise InvalidRequest(f"to: {body.to!r} is none of origin, topic:NAME, sink:CONNECTOR")

    async def _sink_prefix(self, connector: str, name: str) -> str:
        """Return the prefix of a sink's tenant; raise if there is no such sink."""
        item = await self._gateway.metadata.get(keys.connector(connector))
        found = None if item is None else decode_connector(item.value)
        if found is None or found.target == DELETED:
            raise UnknownTopicOrPartition(f"there is no connector {name!r}")
        if not (found.config.get("topics") or found.config.get("topics.regex")):
            raise InvalidRequest(f"to: connector {name!r} is no sink")
        return found.name_prefix


def _answer(body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), media_type=JSON)
