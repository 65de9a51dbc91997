"""Who leads a lane: the same everywhere, evenly, and with few moves."""

from collections import Counter

from service.kafka.brokers.leaders import Broker, chosen, lane_key, near, zone_of

THREE = [Broker(1, "a", 9092, "x"), Broker(2, "b", 9092, "y"), Broker(7, "c", 9092, "x")]
LANES = [lane_key(bytes([topic]) * 16, lane) for topic in range(50) for lane in range(10)]


def test_every_gateway_names_the_same_leader() -> None:
    assert [chosen(lane, THREE) for lane in LANES] == [chosen(lane, THREE[::-1]) for lane in LANES]


def test_lanes_are_spread() -> None:
    led = Counter(chosen(lane, THREE).node_id for lane in LANES)

    assert set(led) == {1, 2, 7}
    assert min(led.values()) > len(LANES) / 6


def test_only_the_lanes_of_a_broker_that_dies_move() -> None:
    for lane in LANES:
        before, after = chosen(lane, THREE), chosen(lane, THREE[:2])

        assert before == after or before == THREE[2]


def test_a_client_is_led_to_brokers_of_its_zone_if_there_are_any() -> None:
    assert near(THREE, "x") == [THREE[0], THREE[2]]
    assert near(THREE, "z") == THREE
    assert near(THREE, "") == THREE


def test_a_zone_is_found_in_the_client_id() -> None:
    assert zone_of("etl,zone=eu-1a") == "eu-1a"
    assert zone_of("warpstream_az=b,etl") == "b"
    assert zone_of("etl, zone=a,other=b") == "a"
    assert zone_of("etl") == zone_of("") == zone_of("timezone=a") == zone_of("zone=") == ""
