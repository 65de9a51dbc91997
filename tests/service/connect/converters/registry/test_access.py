"""What the principal of a connector may do in the registry."""

import pytest

from service.connect.converters.choice import converter_of, header_converter_of
from service.connect.data.errors import ConfigFault, DataFault, TaskFault
from service.connect.data.schema import STRING, struct
from service.security.acls import Acl, CompiledAcls, Operation, PatternType, ResourceType
from service.security.caller import ANYONE, Authenticated, Caller
from tests.service.connect.converters.registry.conftest import Access
from tests.service.connect.converters.registry.values import converter, read, stored

pytestmark = pytest.mark.anyio

AVRO = "avro.AvroConverter"
PREFIXED = PatternType.PREFIXED
SCHEMA = struct([("a", STRING)], name="R")


def someone(*allowed: Operation, prefix: str = "") -> Caller:
    """Return a caller who may do this on subjects whose names begin with `orders`."""
    acls = [
        Acl(ResourceType.SUBJECT, f"{prefix}orders", "User:etl", operation, pattern_type=PREFIXED)
        for operation in allowed
    ]
    identity = Authenticated(
        principal="User:etl", credential_id="k", door="key", name_prefix=prefix
    )
    return Caller(
        identity,
        CompiledAcls(acls),
        "127.0.0.1",
        refused=lambda *_: None,
        changed=lambda *_: None,
    )


async def test_registering_needs_write_and_reading_read(access_of: Access) -> None:
    reader = converter(AVRO, access_of(someone(Operation.READ)))
    writer = converter(AVRO, access_of(someone(Operation.WRITE)))
    with pytest.raises(TaskFault):
        await stored(reader, SCHEMA, {"a": "x"})
    data = await stored(writer, SCHEMA, {"a": "x"})
    assert await read(reader, data) == (SCHEMA, {"a": "x"})
    with pytest.raises(DataFault, match="not found"):
        await read(converter(AVRO, access_of(someone())), data)
    with pytest.raises(TaskFault):
        await stored(writer, SCHEMA, {"a": "x"}, "customers")


async def test_subjects_of_a_tenant_have_its_prefix(access_of: Access) -> None:
    tenant = access_of(someone(Operation.WRITE, Operation.READ, prefix="t1."))
    await stored(converter(AVRO, tenant), SCHEMA, {"a": "x"})
    assert await access_of(ANYONE).latest("t1.orders-value") is not None
    with pytest.raises(DataFault, match="not found"):
        await access_of(ANYONE).latest("orders-value")


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigFault) as refused:
        converter(AVRO, None, value_subject_name_strategy="x", scrub_invalid_names="true")
    assert sorted(refused.value.problems) == [
        "value.converter.scrub.invalid.names",
        "value.converter.value.subject.name.strategy",
    ]
    with pytest.raises(ConfigFault, match="not for headers"):
        header_converter_of("AvroConverter", {})
    assert converter_of("ProtobufConverter", {}, is_key=True, key="key.converter")
