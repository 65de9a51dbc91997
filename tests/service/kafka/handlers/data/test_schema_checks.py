"""Batches for topics that check schemas: which record was refused, and what comes after it."""

import asyncio
import json
from typing import Any

import pytest

from service.kafka.protocol.error_codes import ErrorCode
from service.registry.names import parse_subject
from service.registry.registering import NewSchema, Registrar
from service.security.administering import alter_topic, create_topic
from storage.errors import InvalidConfig, SchemaMismatch
from storage.schemas.source import SchemaType
from storage.topics.schema_rules import Strategy
from tests.service.kafka.callers import ALLOW, caller_with
from tests.service.kafka.cluster import KafkaGateway, batch, kafka_gateway
from tests.service.kafka.handlers.data.test_produce import new_id, produce, request_of, values

pytestmark = pytest.mark.anyio

CHECKED = {"confluent.value.schema.validation": "true"}


async def topic(gateway: KafkaGateway, name: str = "t", **config: str) -> None:
    """Create a topic that checks ids, and register one schema for it: id 1."""
    await gateway.gateway.topics.create(name, config={**CHECKED, **config})
    new = NewSchema(type=SchemaType.JSON, text=json.dumps({"title": name}))
    subject = parse_subject(f"{name}-value")
    await Registrar(gateway.gateway.schemas).register(subject, new, False)


def framed(schema_id: int, data: bytes = b"") -> bytes:
    return b"\0" + schema_id.to_bytes(4) + data


@pytest.mark.parametrize("count", [10, 1_000])
@pytest.mark.parametrize("config", [{}, {"riacho.kafka.slices": "arrow"}])
async def test_a_refused_batch_names_its_records(count: int, config: dict[str, Any]) -> None:
    async with kafka_gateway() as gateway:
        await topic(gateway, **config)
        good = [framed(1, b"%d" % n) for n in range(count)]
        bad = [*good[:-3], framed(2), None, b"plain"]

        [refused] = await produce(gateway, (0, batch(*bad)))

        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert refused.base_offset == -1
        [named] = refused.record_errors
        assert named.batch_index == count - 3
        assert named.batch_index_error_message == (
            "value: subject 't-value' has no schema with id 2"
        )
        assert refused.error_message is not None
        assert refused.error_message.startswith(f"records[{count - 3}].value: ")
        [done] = await produce(gateway, (0, batch(*good, None)))
        assert (done.error_code, done.base_offset) == (0, 0)
        assert await values(gateway) == [*good, None]


async def test_a_refused_batch_uses_no_sequence_numbers() -> None:
    async with kafka_gateway() as gateway:
        await topic(gateway)
        producer = await new_id(gateway)

        async def send(value: bytes, sequence: int) -> int:
            records = batch(value, producer=(producer, 0, sequence))
            [answer] = await produce(gateway, (0, records))
            return answer.error_code

        assert await send(framed(2), 0) == ErrorCode.INVALID_RECORD
        assert await send(framed(1, b"ahead"), 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await send(framed(1, b"a"), 0) == 0
        assert await send(b"plain", 1) == ErrorCode.INVALID_RECORD
        assert await send(framed(1, b"b"), 1) == 0
        assert await values(gateway) == [framed(1, b"a"), framed(1, b"b")]


async def test_the_batches_of_a_connection_keep_their_order() -> None:
    """Those of another partition, and of a topic that checks nothing, do not wait for them."""
    async with kafka_gateway() as gateway:
        await topic(gateway)
        sent = [framed(1, b"%d" % n) for n in range(20)]
        calls = [
            produce(gateway, (0, batch(framed(2) if n == 7 else each)))
            for n, each in enumerate(sent)
        ]

        answers = await asyncio.gather(*calls)

        codes = [answer.error_code for [answer] in answers]
        assert codes == [ErrorCode.INVALID_RECORD if n == 7 else 0 for n in range(20)]
        assert await values(gateway) == [each for n, each in enumerate(sent) if n != 7]


async def test_without_acks_the_connection_is_told() -> None:
    async with kafka_gateway() as gateway:
        await topic(gateway)

        with pytest.raises(SchemaMismatch):
            await gateway.call(12, request_of((0, batch(b"plain")), acks=0))

        assert await values(gateway) == []


async def test_a_tenant_reads_its_own_names() -> None:
    async with kafka_gateway() as gateway:
        await topic(gateway, "ten.t")
        tenant = caller_with(ALLOW("ALL", "TOPIC", "ten.t"), name_prefix="ten.")

        [refused] = await produce(gateway, (0, batch(framed(9))), caller=tenant)

        assert refused.error_message is not None
        assert "ten." not in refused.error_message + str(refused.record_errors)
        assert "subject 't-value'" in refused.error_message


@pytest.mark.parametrize(
    "config",
    [
        {"value.schema.subject": "other.t-value"},
        {"confluent.key.subject.name.strategy": Strategy.RECORD},
    ],
)
async def test_a_tenant_cannot_name_subjects_of_others(config: dict[str, str]) -> None:
    async with kafka_gateway() as kafka:
        gateway = kafka.gateway
        tenant = caller_with(ALLOW("ALL", "TOPIC", "ten.", prefixed=True), name_prefix="ten.")
        allowed = {"confluent.key.subject.name.strategy": Strategy.TOPIC_RECORD, **CHECKED}
        await create_topic(gateway, tenant, "ten.t", config=allowed)

        with pytest.raises(InvalidConfig, match="with a name prefix, leave"):
            await create_topic(gateway, tenant, "ten.u", config=config)
        for change in (config, lambda _: config):
            with pytest.raises(InvalidConfig, match="with a name prefix, leave"):
                await alter_topic(gateway, tenant, "ten.t", config=change)

        reset = dict.fromkeys(config)
        assert (await alter_topic(gateway, tenant, "ten.t", config=reset)).schema_rules
