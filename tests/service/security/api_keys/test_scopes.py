"""A key that another key makes never exceeds it."""

from hypothesis import given
from hypothesis import strategies as st

from service.security.acls import Acl, CompiledAcls, Operation, ResourceType
from service.security.api_keys.credentials import ApiKey, NewKey
from service.security.api_keys.minting import may_manage, minted
from service.security.api_keys.scopes import KeyScope, NamePattern
from service.security.caller import Authenticated, Caller, authorize
from storage.errors import InvalidRequest, Unauthorized
from tests.examples import some

NOW_MS = 1_000_000
NO_ACLS = CompiledAcls()
ALL_ACLS = CompiledAcls(
    Acl(
        resource_type=kind,
        resource_name="kafka-cluster" if kind is ResourceType.CLUSTER else "*",
        principal="User:*",
        operation=Operation.ALL,
    )
    for kind in ResourceType
)

texts = st.text("ab.", max_size=3)
patterns = st.lists(
    st.one_of(
        texts.filter(bool).map(lambda text: NamePattern(exact=text)),
        texts.map(lambda text: NamePattern(prefix=text)),
    ),
    max_size=2,
)
operations = st.sampled_from(list(Operation))
scopes = st.builds(
    KeyScope,
    topics=patterns,
    groups=patterns,
    transactional_ids=patterns,
    cluster=st.booleans(),
    operations=st.none() | st.lists(operations, min_size=1, max_size=3),
)
kinds = st.sampled_from(list(ResourceType))
names = st.text("ab.", min_size=1, max_size=5)
questions = st.tuples(operations, kinds, names)
asked_keys = st.builds(
    NewKey,
    principal=st.sampled_from(["User:ana", "User:bia", "User:root"]),
    expires_ms=st.none() | st.integers(NOW_MS, NOW_MS + 100),
    scope=st.none() | scopes,
    name_prefix=texts,
    is_super=st.booleans(),
)


def caller_with(key: ApiKey, acls: CompiledAcls) -> Caller:
    identity = Authenticated(
        principal=key.principal,
        credential_id=key.key_id,
        door="key",
        is_super=key.is_super or key.principal == "User:root",
        scope=key.scope,
        name_prefix=key.name_prefix,
        expires_ms=key.expires_ms,
    )
    return Caller(identity, acls, "", refused=lambda *_: None, changed=lambda *_: None)


def stored(new: NewKey, number: int) -> ApiKey:
    return ApiKey(
        key_id=f"key{number}",
        principal=new.principal,
        digest=b"",
        created_ms=NOW_MS,
        expires_ms=new.expires_ms,
        scope=new.scope,
        name_prefix=new.name_prefix,
        is_super=new.is_super,
        parent_id=new.parent_id,
    )


def may(key: ApiKey, acls: CompiledAcls, question: tuple[Operation, ResourceType, str]) -> bool:
    return authorize(caller_with(key, acls).identity, acls, "", *question).allowed


@some
@given(scopes, scopes, st.lists(questions, max_size=20))
def test_what_a_scope_contains_allows_nothing_more(
    outer: KeyScope, inner: KeyScope, asked: list[tuple[Operation, ResourceType, str]]
) -> None:
    assert not outer.contains(None)
    assert outer.contains(outer)
    if outer.contains(inner):
        for question in asked:
            assert outer.allows(*question) or not inner.allows(*question)


@some
@given(scopes, questions)
def test_what_is_allowed_is_allowed_somewhere(
    scope: KeyScope, question: tuple[Operation, ResourceType, str]
) -> None:
    operation, kind, _ = question
    if scope.allows(*question):
        assert scope.allows_some(operation, kind)


@some
@given(
    st.sampled_from([NO_ACLS, ALL_ACLS]),
    asked_keys,
    st.lists(asked_keys, max_size=4),
    st.lists(questions, max_size=20),
)
def test_a_chain_of_keys_only_gets_narrower(
    acls: CompiledAcls,
    first: NewKey,
    asked: list[NewKey],
    questions: list[tuple[Operation, ResourceType, str]],
) -> None:
    chain = [stored(first, 0)]
    for number, new in enumerate(asked, 1):
        caller = caller_with(chain[-1], acls)
        try:
            made = minted(caller, new, frozenset({"User:root"}))
        except (InvalidRequest, Unauthorized):
            continue
        parent, key = chain[-1], stored(made, number)
        assert key.name_prefix.startswith(parent.name_prefix)
        if parent.expires_ms is not None:
            assert key.expires_ms is not None
            assert key.expires_ms <= parent.expires_ms
        if not caller.identity.is_super and not caller.allows(
            Operation.ALTER, ResourceType.CLUSTER, "kafka-cluster"
        ):
            assert key.principal == parent.principal
            assert key.parent_id == parent.key_id
        for question in questions:
            assert may(parent, acls, question) or not may(key, acls, question)
        # Whoever makes a key may also end it; nobody may manage a key that is wider.
        assert may_manage(caller, key, frozenset({"User:root"}))
        chain.append(key)


@some
@given(
    st.sampled_from([NO_ACLS, ALL_ACLS]), asked_keys, asked_keys, st.lists(questions, max_size=20)
)
def test_nobody_gets_a_secret_of_a_wider_key(
    acls: CompiledAcls,
    mine: NewKey,
    other: NewKey,
    questions: list[tuple[Operation, ResourceType, str]],
) -> None:
    """Whoever may rotate a key gets its secret, and can do what it can."""
    own, wanted = stored(mine, 0), stored(other, 1)
    if may_manage(caller_with(own, acls), wanted, frozenset({"User:root"})):
        for question in questions:
            assert may(own, acls, question) or not may(wanted, acls, question)
