"""Kafka's own tools, Connect, kafkajs and kcat work on a gateway as they are."""

import json
import shutil
from pathlib import Path

import httpx
import pytest

from tests.gateway import GatewayProcess
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
    program = Path(__file__).with_name("kafkajs.mjs")

    printed = run(["node", str(program), bootstrap, "from-js"], cwd=node_folder)

    seen = json.loads(printed)
    assert sorted(value for _, value, _, _ in seen) == sorted(f"v{n}" for n in range(20))
    assert {header for _, _, header, _ in seen} == {"kafkajs"}
    for key in ("k0", "k1", "k2", "k3"):
        own = [(int(value[1:]), place) for of, value, _, place in seen if of == key]
        assert own == sorted(own)
        assert len({place for _, place in own}) == 1


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_writes_and_reads(bootstrap: str, gateway: GatewayProcess) -> None:
    at = ["kcat", "-q", "-b", bootstrap, "-t", "from-kcat"]

    run([*at, "-P", "-K:", "-z", "lz4", "-H", "a=1"], told="k:one\nk:two\n")

    read = run([*at, "-C", "-e", "-o", "beginning", "-f", "%o %k %s %h\n"])
    assert read == "0 k one a=1\n1 k two a=1\n"
