"""`riacho keys`, `acls`, `quotas` and `whoami`, against a gateway with security."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from riacho import Admin
from riacho.cli.security.options import AclOperation
from service.security.acls import Operation
from storage.errors import Unauthenticated, UnknownCredential
from tests.commands import exit_code, nowhere, riacho, riacho_process
from tests.gateway import GatewayProcess, start_gateway

ACCEPTED_WITHIN_S = 30.0
"""Far more than the three seconds after which a gateway looks for changes."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("closed")


@pytest.fixture(scope="module")
def root(folder: Path) -> str:
    """Return the first key, which is made before any gateway runs."""
    done = riacho("keys", "create", "--super", "--data", str(folder / "data"), "-o", "json")
    made = json.loads(done.stdout)
    assert (made["principal"], made["super"], made["created_by"]) == (
        "User:root",
        True,
        "owner of the stores",
    )
    assert "accepts the key within 3 seconds" in done.stderr.decode()
    return str(made["key"])


@pytest.fixture(scope="module")
def closed(folder: Path, root: str) -> Iterator[GatewayProcess]:
    with start_gateway(folder, "--security", "on") as gateway:
        yield gateway


@pytest.fixture(autouse=True)
def as_root(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIACHO_TOKEN", root)


def test_the_first_key_of_the_stores_opens_the_gateway(closed: GatewayProcess) -> None:
    found = json.loads(riacho("whoami", "-o", "json", url=closed.url).stdout)

    assert (found["principal"], found["door"], found["super"]) == ("User:root", "key", True)
    fields = riacho("whoami", url=closed.url).stdout.decode()
    assert "principal    User:root" in fields


def test_without_a_credential_the_gateway_is_closed(
    closed: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RIACHO_TOKEN")

    code, done = exit_code("topic", "list", env={"RIACHO_URL": closed.url})
    assert code == 1
    assert "SASL_AUTHENTICATION_FAILED" in done.stderr.decode()
    with Admin(closed.url) as admin, pytest.raises(Unauthenticated):
        admin.whoami()


def test_a_running_gateway_accepts_a_key_made_in_its_stores(
    closed: GatewayProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    riacho("whoami", url=closed.url)
    arguments = ("--super", "--principal", "User:second", "--data", str(folder / "data"))
    made = json.loads(riacho_process("keys", "create", *arguments, "-o", "json").stdout)

    monkeypatch.setenv("RIACHO_TOKEN", made["key"])
    deadline = time.monotonic() + ACCEPTED_WITHIN_S
    while True:
        code, done = exit_code("whoami", "-o", "json", env={"RIACHO_URL": closed.url})
        if code == 0:
            break
        assert time.monotonic() < deadline, done.stderr.decode()
    assert json.loads(done.stdout)["credential"] == made["id"]


def test_a_key_is_created_listed_described_rotated_and_revoked(closed: GatewayProcess) -> None:
    arguments = (
        *("keys", "create", "--principal", "ana", "--topic", "orders", "--topic", "acme.*"),
        *("--group", "*", "--operation", "read", "--expires", "30d", "--description", "the shop"),
    )
    before_ms = time.time_ns() // 1_000_000
    made = json.loads(riacho(*arguments, "-o", "json", url=closed.url).stdout)
    assert made["principal"] == "User:ana"
    assert made["scope"] == {
        "topics": [{"exact": "orders"}, {"prefix": "acme."}],
        "groups": [{"prefix": ""}],
        "operations": ["READ"],
    }
    assert made["expires_ms"] >= before_ms + 30 * 86_400_000

    table = riacho("keys", "list", url=closed.url).stdout.decode()
    assert "topics=orders,acme.* groups=* operations=READ" in table
    listed = json.loads(riacho("keys", "list", "-o", "json", url=closed.url).stdout)
    described = json.loads(
        riacho("keys", "describe", made["id"], "-o", "json", url=closed.url).stdout
    )
    assert described in listed
    assert "key" not in described
    assert "the shop" in riacho("keys", "describe", made["id"], url=closed.url).stdout.decode()

    rotated = riacho("keys", "rotate", made["id"], "--overlap", "0s", url=closed.url)
    shown = rotated.stdout.decode().split()
    [new] = [word for word in shown if word.startswith("rk_")]
    assert new != made["key"]
    assert "not shown again" in rotated.stderr.decode()

    revoked = riacho("keys", "revoke", made["id"], url=closed.url)
    assert revoked.stderr.decode() == f"key {made['id']} was revoked\n"
    failed = riacho("keys", "describe", made["id"], url=closed.url, code=1)
    assert "RESOURCE_NOT_FOUND" in failed.stderr.decode()


def test_acls_say_what_a_key_may_do_and_check_says_why(closed: GatewayProcess) -> None:
    check = ("acls", "check", "--principal", "User:bia", "--operation", "WRITE", "--topic", "t")
    refused = riacho(*check, url=closed.url, code=1)
    assert refused.stdout.decode() == "no: no ACL allows User:bia WRITE on TOPIC t\n"

    riacho("acls", "create", "--principal", "bia", "--producer", "--topic", "t*", url=closed.url)
    allowed = riacho(*check, url=closed.url).stdout.decode()
    assert allowed.startswith("yes: allowed by an ACL on TOPIC prefix t for User:bia\n")
    assert "ALLOW       User:bia   WRITE      TOPIC  t*    *" in allowed

    deny = ("--deny", "--principal", "bia", "--operation", "WRITE", "--topic", "t")
    riacho("acls", "create", *deny, url=closed.url)
    answer = json.loads(riacho(*check, "-o", "json", url=closed.url, code=1).stdout)
    assert (answer["allowed"], answer["acl"]["permission"]) == (False, "DENY")

    listed = riacho("acls", "list", "--topic", "t", "--match", "-o", "json", url=closed.url)
    found = {(acl["operation"], acl["pattern_type"]) for acl in json.loads(listed.stdout)}
    assert found == {
        *(("WRITE", "PREFIXED"), ("DESCRIBE", "PREFIXED"), ("CREATE", "PREFIXED")),
        ("WRITE", "LITERAL"),
    }
    deleted = riacho("acls", "delete", "--principal", "bia", url=closed.url)
    assert deleted.stderr.decode() == "4 ACLs were deleted\n"
    assert riacho("acls", "list", "--principal", "bia", url=closed.url).stdout.count(b"\n") == 1


def test_a_consumer_gets_what_it_needs(closed: GatewayProcess) -> None:
    consumer = ("--principal", "till", "--consumer", "--topic", "orders", "--group", "till-1")
    made = riacho("acls", "create", *consumer, "-o", "json", url=closed.url)

    found = [(acl["resource_type"], acl["operation"]) for acl in json.loads(made.stdout)]
    assert found == [("TOPIC", "READ"), ("TOPIC", "DESCRIBE"), ("GROUP", "READ")]


def test_a_key_of_a_tenant_sees_its_own_names(
    closed: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    riacho(
        *("acls", "create", "--principal", "acme", "--operation", "ALL", "--topic", "acme.*"),
        url=closed.url,
    )
    arguments = ("keys", "create", "--principal", "acme", "--name-prefix", "acme.", "-o", "json")
    made = json.loads(riacho(*arguments, url=closed.url).stdout)
    with Admin(closed.url) as admin:
        admin.create_topic("acme.orders")
        admin.create_topic("other")

    monkeypatch.setenv("RIACHO_TOKEN", made["key"])
    listed = json.loads(riacho("topic", "list", "-o", "json", url=closed.url).stdout)
    assert [topic["name"] for topic in listed] == ["orders"]


def test_quotas_are_set_listed_and_removed(closed: GatewayProcess) -> None:
    limits = ("producer_byte_rate=1048576", "request_percentage=50")
    riacho("quotas", "set", "--user", "ana", *limits, url=closed.url)
    [listed] = json.loads(
        riacho("quotas", "list", "--user", "ana", "-o", "json", url=closed.url).stdout
    )
    assert (listed["producer_byte_rate"], listed["request_percentage"]) == (1_048_576, 50)

    removed = ("producer_byte_rate=none", "request_percentage=none")
    riacho("quotas", "set", "--user", "ana", *removed, url=closed.url)
    assert riacho("quotas", "list", url=closed.url).stdout.count(b"\n") == 1


def test_a_super_key_may_be_made_by_a_gateway(closed: GatewayProcess) -> None:
    arguments = ("keys", "create", "--super", "--via-gateway", "--principal", "cleo")
    made = json.loads(riacho(*arguments, "-o", "json", url=closed.url).stdout)

    assert (made["super"], made["created_by"]) == (True, "User:root")


@pytest.mark.parametrize(
    "arguments",
    [
        ("keys", "create", "--operation", "READ"),
        ("keys", "create", "--operation", "EAT", "--topic", "t"),
        ("keys", "create", "--via-gateway"),
        ("keys", "create", "--expires", "soon"),
        ("keys", "create", "--topic", ""),
        ("keys", "rotate", "x", "--overlap", "1 week"),
        ("acls", "create", "--principal", "ana", "--operation", "READ"),
        ("acls", "create", "--principal", "ana", "--topic", "t"),
        ("acls", "create", "--principal", "ana", "--consumer", "--topic", "t"),
        ("acls", "create", "--deny", "--principal", "ana", "--producer", "--topic", "t"),
        ("acls", "list", "--match"),
        ("acls", "list", "--topic", "a", "--topic", "b"),
        ("acls", "delete"),
        ("acls", "delete", "--all", "--principal", "ana"),
        ("acls", "check", "--principal", "ana", "--operation", "READ"),
        ("quotas", "set", "producer_byte_rate=1"),
        ("quotas", "set", "--user", "ana", "speed=1"),
        ("quotas", "set", "--user", "ana", "producer_byte_rate=fast"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    code, done = exit_code(*arguments, env={"RIACHO_URL": nowhere()})

    assert code == 2, done
    assert done.stderr


def test_a_principal_that_nobody_can_have_is_wrong_usage(tmp_path: Path) -> None:
    arguments = ("keys", "create", "--super", "--principal", "User:*", "--data", str(tmp_path))

    code, _ = exit_code(*arguments, env={})

    assert code == 2


def test_the_operations_of_the_command_line_are_those_of_the_service() -> None:
    assert [*AclOperation] == [*Operation]


def test_the_sdk_raises_what_the_gateway_answers(closed: GatewayProcess) -> None:
    with Admin(closed.url) as admin:
        made = admin.create_key("User:ana", description="d")
        assert admin.describe_key(made.id) in admin.list_keys()
        assert admin.rotate_key(made.id, overlap_ms=0).key != made.key
        admin.revoke_key(made.id)
        with pytest.raises(UnknownCredential):
            admin.describe_key(made.id)
        assert not admin.check_acl("User:nobody", "READ", "CLUSTER").allowed
