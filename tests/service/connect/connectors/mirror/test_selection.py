"""What the mirror decides without a cluster: names, shares, offsets, settings of clients."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.connect.connectors.mirror.offset_map import PAIRS_MAX, OffsetMap, map_of
from service.connect.connectors.mirror.security import client_settings
from service.connect.connectors.mirror.selection import Naming, PartitionShare, chosen, share_of
from tests.examples import few, some

SOURCE = "source.cluster."


def test_names_and_patterns_choose() -> None:
    is_wanted = chosen(["orders", r"eu\..*"], [r".*\.internal"])

    wanted = [
        name for name in ("orders", "orders2", "eu.a", "eu.a.internal", "euXa") if is_wanted(name)
    ]

    assert wanted == ["orders", "eu.a"]
    with pytest.raises(ValueError, match="RE2"):
        chosen(["("], ())


def test_topics_are_named_as_the_policy_says() -> None:
    assert Naming(source="old").here("orders") == "old.orders"
    assert Naming(source="old", separator="-").here("orders") == "old-orders"
    assert Naming(source="old", is_identity=True).here("orders") == "orders"
    assert Naming(source="old", target="here").is_ours("here.orders")


@few
@given(st.integers(1, 9), st.text(min_size=1), st.integers(0, 50))
def test_each_partition_belongs_to_one_task(count: int, topic: str, partition: int) -> None:
    shares = [share_of(str(PartitionShare(n, count))) for n in range(count)]

    assert sum(share.has(topic, partition) for share in shares) == 1


@some
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9)), max_size=100), st.integers(0, 600))
def test_a_translated_offset_is_never_ahead(steps: list[tuple[int, int]], asked: int) -> None:
    # Each step: records that the source gives, of offsets that are up to 4 further; one each here.
    offsets_there: list[int] = []
    known = OffsetMap()
    for records, gap in steps:
        for _ in range(records):
            offsets_there.append((offsets_there[-1] if offsets_there else 0) + gap)
        known.add(offsets_there[-1] + 1, len(offsets_there))

    found = map_of(known.pairs).translate(asked)

    assert len(known.pairs) <= PAIRS_MAX
    if found is not None:
        assert all(there < asked for there in offsets_there[:found])


def test_java_settings_become_those_of_librdkafka(tmp_path: Path) -> None:
    said = {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="anna" password="a\\"b;c";',
        "ssl.truststore.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }

    found = client_settings({SOURCE + name: text for name, text in said.items()}, tmp_path)

    assert found == {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "anna",
        "sasl.password": 'a"b;c',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("said", "match"),
    [
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "username"),
        ({"ssl.truststore.location": "../ca.pem"}, "not below"),
        ({"ssl.truststore.location": "ca.jks"}, "PEM"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    said: dict[str, str], match: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=match):
        client_settings({SOURCE + name: text for name, text in said.items()}, tmp_path)
