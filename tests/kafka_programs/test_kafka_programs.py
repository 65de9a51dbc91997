"""Kafka's own tools, Connect, kafkajs and kcat work on a gateway as they are."""

import json
import shutil
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess
from tests.integration.test_kafka_clients import Sent
from tests.kafka_programs.connect import connecting
from tests.kafka_programs.programs import Tools, kafkajs, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_kafkas_tools_make_write_read_and_reset(tools: Tools, gateway: GatewayProcess) -> None:
    numbers = [str(number) for number in range(50)]
    tools("TopicCommand", "--create", "--topic", "t", "--partitions", "3")
    tools("ConsoleProducer", "--topic", "t", told="\n".join(numbers) + "\n")
    read = ["--topic", "t", "--from-beginning", "--max-messages", "50", "--timeout-ms", "200000"]

    classic = tools("consumer.ConsoleConsumer", *read, "--group", "classic")
    kip_848 = ("--command-property", "group.protocol=consumer")
    newer = tools("consumer.ConsoleConsumer", *read, "--group", "newer", *kip_848)

    assert sorted(classic.split(), key=int) == numbers
    assert sorted(newer.split(), key=int) == numbers
    of_classic = f"{gateway.url}/v1/groups/classic/offsets"
    committed = httpx.get(of_classic).json()["offsets"]
    assert sum(each["offset"] for each in committed) == 50
    group = ["--group", "classic"]
    described = tools("consumer.group.ConsumerGroupCommand", "--describe", *group)
    assert "LOG-END-OFFSET" in described
    reset = ["--reset-offsets", "--topic", "t", "--to-earliest", "--execute"]
    tools("consumer.group.ConsumerGroupCommand", *group, *reset)
    assert {each["offset"] for each in httpx.get(of_classic).json()["offsets"]} == {0}
    tools("consumer.group.ConsumerGroupCommand", *group, "--delete")
    listed = tools("consumer.group.ConsumerGroupCommand", "--list")
    assert listed.split() == ["newer"]


def test_kafkas_tools_administer(tools: Tools, gateway: GatewayProcess) -> None:
    tools("TopicCommand", "--create", "--topic", "set", "--replication-factor", "3")
    of_topic = ["--entity-type", "topics", "--entity-name", "set"]

    tools("kafka.admin.ConfigCommand", *of_topic, "--alter", "--add-config", "retention.ms=60000")

    config = httpx.get(f"{gateway.url}/v1/topics/set").json()["config"]
    assert config["retention.ms"] == "60000"
    shown = tools("kafka.admin.ConfigCommand", *of_topic, "--describe")
    assert "retention.ms=60000" in shown
    assert '"partition":"set-0"' in tools("LogDirsCommand", "--describe", "--topic-list", "set")


SHOWN = {
    "nodes": "1",
    "controller": "true",
    "operations": "true",
    "broker": "1",
    "log dirs": "1",
    "features": "true",
    "quorum": "UnsupportedVersionException",
    "acls": "SecurityDisabledException",
    "quotas": "0",
    "users": "0",
    "reassignments": "0",
    "transactions": "0",
    "metrics": "0",
    "topics": "true",
    "topic": "2",
    "config": "delete",
    "start": "0",
    "end": "2",
    "newest": "1",
    "by time": "0",
    "producers": "1",
    "groups": "true",
    "group": "Empty",
    "committed": "2",
    "share groups": "0",
    "streams groups": "0",
    "alter config": "null",
    "add partitions": "null",
    "delete records": "1",
    "reset": "null",
    "delete group": "null",
    "copy": "null",
    "delete": "null",
}
"""What user interfaces in Java see; the two exceptions are those that they expect."""


@pytest.mark.skipif(shutil.which("javac") is None, reason="there is no `javac` on the PATH")
def test_calls_of_user_interfaces(tools: Tools, gateway: GatewayProcess) -> None:
    httpx.post(f"{gateway.url}/v1/topics", json={"name": "shown", "partitions": 2})
    sent = Sent(tools.bootstrap)
    sent.send("shown", 0, b"1")
    sent.flush()
    sent.send("shown", 0, b"2")
    sent.flush()
    committed = {"offsets": [{"topic": "shown", "partition": 0, "offset": 2}]}
    httpx.post(f"{gateway.url}/v1/groups/shown/offsets", json=committed).raise_for_status()
    program = str(Path(__file__).with_name("java") / "Interface.java")

    printed = run(tools.command(program, tools.bootstrap, "shown"))

    assert dict(line.split("\t") for line in printed.splitlines()) == SHOWN


def test_connect_copies_a_file_to_a_topic_and_the_topic_to_a_file(
    tools: Tools, gateway: GatewayProcess, tmp_path: Path
) -> None:
    lines = [f"line {number}" for number in range(20)]
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_text("\n".join(lines) + "\n")

    with connecting(tools, tmp_path) as connect:
        connect.create("read", "FileStreamSource", file=str(source), topic="lines")
        connect.create("write", "FileStreamSink", file=str(copy), topics="lines")
        connect.until(lambda: copy.is_file() and copy.read_text().splitlines() == lines)

    [first, *_] = httpx.get(f"{gateway.url}/v1/topics/lines/partitions/0/records").json()["records"]
    assert first["value"] == "line 0"


@pytest.fixture
def node_folder() -> Path:
    return kafkajs()


def test_kafkajs_writes_and_reads_in_a_group(
    bootstrap: str, gateway: GatewayProcess, node_folder: Path
) -> None:
    program = Path(__file__).with_name("js") / "records.mjs"

    printed = run(["node", str(program), bootstrap, "from-js"], cwd=node_folder)

    seen = json.loads(printed)
    assert sorted(value for _, value, _, _ in seen) == sorted(f"v{n}" for n in range(20))
    assert {header for _, _, header, _ in seen} == {"kafkajs"}
    for key in ("k0", "k1", "k2", "k3"):
        own = [(int(value[1:]), place) for of, value, _, place in seen if of == key]
        assert own == sorted(own)
        assert len({place for _, place in own}) == 1


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_writes_reads_and_asks(bootstrap: str, gateway: GatewayProcess) -> None:
    at, topic = ["kcat", "-q", "-b", bootstrap], ["-t", "from-kcat"]

    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        run([*at, *topic, "-P", "-K:", "-z", codec, "-H", "a=1"], told=f"k:{codec}\nk:two\n")

    values = ["none", "two", "gzip", "two", "snappy", "two", "lz4", "two", "zstd", "two"]
    lines = [f"{offset} k {value} a=1" for offset, value in enumerate(values)]
    shown = ["-e", "-f", "%o %k %s %h\n"]
    assert run([*at, *topic, "-C", "-o", "beginning", *shown]).splitlines() == lines
    assert run([*at, *topic, "-C", "-o", "-2", *shown]).splitlines() == lines[-2:]
    by_group = ["-X", "auto.offset.reset=earliest", "-G", "kcat", *shown, "from-kcat"]
    assert run([*at, *by_group]).splitlines() == lines
    asked = {"-1": 10, "-2": 0, "1": 0}
    for when, offset in asked.items():
        found = run([*at, "-Q", "-t", f"from-kcat:0:{when}"])
        assert found.split() == ["from-kcat", "[0]", "offset", str(offset)]
    [described] = json.loads(run([*at, *topic, "-L", "-J"]))["topics"]
    assert [each["partition"] for each in described["partitions"]] == [0]
