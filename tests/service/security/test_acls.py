"""Random ACLs against an oracle that reads Kafka's rules word by word."""

from hypothesis import given
from hypothesis import strategies as st

from service.security.acls import (
    Acl,
    AclFilter,
    CompiledAcls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.examples import some

NAMES = ("a", "ab", "abc", "b", "*")
PRINCIPALS = ("User:ana", "User:bia")
HOSTS = ("10.0.0.1", "10.0.0.2")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)
# Few of each, so that they meet.
OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
    Operation.CREATE,
)

acls = st.builds(
    Acl,
    resource_type=st.sampled_from(KINDS),
    resource_name=st.sampled_from(NAMES),
    principal=st.sampled_from([*PRINCIPALS, "User:*"]),
    operation=st.sampled_from([*OPERATIONS, Operation.ALL]),
    permission=st.sampled_from(list(Permission)),
    pattern_type=st.sampled_from(list(PatternType)),
    host=st.sampled_from([*HOSTS, "*"]),
)
questions = st.tuples(
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from(KINDS),
)


def about(acl: Acl, principal: str, host: str, kind: ResourceType, name: str) -> bool:
    """Whether the ACL is about this caller and this resource."""
    if acl.pattern_type is PatternType.PREFIXED:
        is_match = name.startswith(acl.resource_name)
    else:
        is_match = acl.resource_name in (name, "*")
    is_caller = acl.principal in (principal, "User:*") and acl.host in (host, "*")
    return is_match and is_caller and acl.resource_type is kind


def oracle(
    all_of_them: list[Acl], question: tuple[str, str, Operation, ResourceType], name: str
) -> bool:
    principal, host, operation, kind = question
    mine = [acl for acl in all_of_them if about(acl, principal, host, kind, name)]
    for acl in mine:
        if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL):
            return False
    enough = {operation, Operation.ALL}
    if operation is Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation is Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(acl.permission is Permission.ALLOW and acl.operation in enough for acl in mine)


@some
@given(st.lists(acls, max_size=12), questions, st.sampled_from(NAMES))
def test_decides_as_kafka_does(
    given_acls: list[Acl], question: tuple[str, str, Operation, ResourceType], name: str
) -> None:
    compiled = CompiledAcls(given_acls)
    for _ in range(2):  # The second answer is remembered.
        decision = compiled.decide(*question, name)
        assert decision.allowed == oracle(given_acls, question, name)
        if decision.acl is not None:
            assert decision.acl in given_acls
            assert (decision.acl.permission is Permission.ALLOW) == decision.allowed
        assert decision.why


@some
@given(st.lists(acls, max_size=12), questions, st.text("abcx*", min_size=1, max_size=4))
def test_whoever_may_something_somewhere_is_told_so(
    given_acls: list[Acl], question: tuple[str, str, Operation, ResourceType], name: str
) -> None:
    if oracle(given_acls, question, name):
        assert CompiledAcls(given_acls).allows_some(*question)


@some
@given(st.lists(acls, max_size=12), questions)
def test_nowhere_is_nowhere(
    given_acls: list[Acl], question: tuple[str, str, Operation, ResourceType]
) -> None:
    """As in Kafka, it may say yes if several denials together hide all that is allowed."""
    denials = [acl for acl in given_acls if acl.permission is Permission.DENY]
    if len(denials) <= 1 and not CompiledAcls(given_acls).allows_some(*question):
        fresh = "z"  # No pattern but * matches it.
        inside = [acl.resource_name + tail for acl in given_acls for tail in ("", "y", "z")]
        for name in [fresh, *inside]:
            assert not oracle(given_acls, question, name)


@some
@given(st.lists(acls, max_size=8, unique=True), acls, st.booleans(), st.sampled_from(NAMES))
def test_filters_find_what_they_say(
    given_acls: list[Acl], like: Acl, is_match: bool, name: str
) -> None:
    exact = AclFilter(
        resource_type=like.resource_type,
        resource_name=like.resource_name,
        pattern_type=like.pattern_type,
        principal=like.principal,
        host=like.host,
        operation=like.operation,
        permission=like.permission,
    )
    assert [acl for acl in [*given_acls, like] if exact.matches(acl)] == [
        acl for acl in [*given_acls, like] if acl == like
    ]
    assert all(AclFilter().matches(acl) for acl in given_acls)
    wanted = AclFilter(resource_name=name, matches_names=is_match)
    for acl in given_acls:
        found = acl.resource_name == name
        if is_match:
            found = found or about(acl, acl.principal, acl.host, acl.resource_type, name)
        assert wanted.matches(acl) == found
