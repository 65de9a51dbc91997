"""Kafka's tools log in by SCRAM over TLS; each works, or says plainly why it does not."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.secured import allow
from tests.integration.test_kafka_clients import Sent
from tests.kafka_programs.programs import TIMEOUT_S, Tools, kafka_jars, run
from tests.kafka_programs.secured import PASSWORD, USER, Secured
from tests.torture.sizes import only_proof, some

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PACKAGE = "org.apache.kafka.tools."
OF_BOB = ("--entity-type", "users", "--entity-name", "bob")


@dataclass(frozen=True)
class Case:
    main: str
    """The class of the tool, below `PACKAGE` or in full."""
    arguments: Sequence[str]
    expected: str
    """What it prints."""
    code: int = 0

    @property
    def command(self) -> Sequence[str]:
        main = self.main if self.main.startswith("kafka.") else PACKAGE + self.main
        return (main, *self.arguments)

    def __str__(self) -> str:
        return " ".join([self.main.rpartition(".")[2], *self.arguments[:3]])


WORK = [
    Case("AclCommand", ("--list",), "principal=User:cid"),
    Case(
        "AclCommand",
        ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "t"),
        "principal=User:bob",
    ),
    Case(
        "kafka.admin.ConfigCommand",
        ("--alter", *OF_BOB, "--add-config", "SCRAM-SHA-256=[password=of-bob]"),
        "Completed updating config for user bob",
    ),
    Case(
        "kafka.admin.ConfigCommand",
        ("--alter", *OF_BOB, "--add-config", "producer_byte_rate=1000000"),
        "Completed updating config for user bob",
    ),
    Case(
        "kafka.admin.ConfigCommand",
        ("--describe", "--entity-type", "users", "--entity-name", USER),
        "SCRAM-SHA-512=iterations=4096",
    ),
    Case(
        "kafka.admin.ConfigCommand",
        ("--describe", "--entity-type", "brokers", "--entity-name", "1", "--all"),
        "node.id=1",
    ),
    Case("GetOffsetShell", ("--topic", "t"), "t:0:4"),
    Case(
        "DeleteRecordsCommand", ("--offset-json-file", "{folder}/delete.json"), "low_watermark: 2"
    ),
    Case("reassign.ReassignPartitionsCommand", ("--list",), "No partition reassignments found"),
    Case(
        "LeaderElectionCommand",
        ("--election-type", "preferred", "--topic", "t", "--partition", "0"),
        "Valid replica already elected for partitions t-0",
    ),
    Case("FeatureCommand", ("describe",), "group.version"),
    Case("BrokerApiVersionsCommand", (), "Produce(0): 0 to 13 [usable: 13]"),
    Case("TransactionsCommand", ("list",), "TransactionalId"),
    Case(
        "TransactionsCommand",
        ("describe-producers", "--topic", "t", "--partition", "0"),
        "LastSequence",
    ),
    Case("GroupsCommand", ("--list",), "PROTOCOL"),
    Case("consumer.group.ShareGroupCommand", ("--list",), ""),
]
REFUSE = [
    Case(
        "kafka.admin.ConfigCommand",
        (
            "--alter",
            "--entity-type",
            "brokers",
            "--entity-name",
            "1",
            "--add-config",
            "log.cleaner.threads=2",
        ),
        "a broker is a gateway here",
        1,
    ),
    Case(
        "reassign.ReassignPartitionsCommand",
        ("--execute", "--reassignment-json-file", "{folder}/move.json"),
        "The node does not support ALTER_PARTITION_REASSIGNMENTS",
        1,
    ),
    Case("MetadataQuorumCommand", ("describe", "--status"), "does not support DESCRIBE_QUORUM", 1),
    Case(
        "DelegationTokenCommand", ("--describe",), "does not support DESCRIBE_DELEGATION_TOKEN", 1
    ),
    Case(
        "consumer.ConsoleShareConsumer",
        ("--topic", "t", "--timeout-ms", "5000"),
        "The cluster does not support the share group protocol",
    ),
]


@pytest.fixture(scope="module")
def jars() -> Path:
    return kafka_jars()


@pytest.fixture(scope="module")
def folder(jars: Path, secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the tools find what they need, beside a topic of four records."""
    folder = tmp_path_factory.mktemp("tools")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="{USER}" password="{PASSWORD}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.ca),
    }
    lines = "".join(f"{name}={text}\n" for name, text in settings.items())
    (folder / "login.properties").write_text(lines)
    place = {"topic": "t", "partition": 0}
    for name, more in (("delete", {"offset": 2}), ("move", {"replicas": [1]})):
        text = json.dumps({"version": 1, "partitions": [{**place, **more}]})
        (folder / f"{name}.json").write_text(text)
    with secured.as_root() as root:
        for principal in ("User:ann", "User:cid"):
            allow(root, principal, "READ", "t")
    sent = Sent(**{"address": secured.bootstrap, **secured.config})
    sent.send("t", 0, *(b"%d" % number for number in range(4)))
    sent.flush()
    return folder


def asked(jars: Path, secured: Secured, folder: Path, main: str, *arguments: str) -> list[str]:
    """Return the command that runs a tool on the gateway, logged in."""
    at = ["--bootstrap-server", secured.bootstrap]
    login = ["--command-config", str(folder / "login.properties")]
    return Tools(jars, secured.bootstrap).command(main, *at, *login, *arguments)


@pytest.mark.parametrize("case", some([*WORK, *REFUSE], WORK[1], WORK[3], REFUSE[1]), ids=str)
def test_a_tool(jars: Path, secured: Secured, folder: Path, case: Case) -> None:
    main, *arguments = [each.replace("{folder}", str(folder)) for each in case.command]
    command = asked(jars, secured, folder, main, *arguments)

    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)

    assert case.expected in done.stdout + done.stderr
    assert done.returncode == case.code


@only_proof
def test_only_the_acl_that_was_named_is_removed(jars: Path, secured: Secured, folder: Path) -> None:
    of_ann = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "t")

    run(asked(jars, secured, folder, PACKAGE + "AclCommand", "--remove", "--force", *of_ann))

    with secured.as_root() as root:
        left = {each["principal"] for each in root.get("/v1/acls").json()["acls"]}
    assert "User:cid" in left
    assert "User:ann" not in left
