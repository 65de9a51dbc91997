"""Which quota decides, against an oracle; the arithmetic of buckets."""

from hypothesis import given
from hypothesis import strategies as st

from service.security.quotas.limits import (
    CLOCKS_APART_MS_MAX,
    DEFAULT,
    Bucket,
    Limit,
    QuotaEntity,
    QuotaKind,
    QuotaLimits,
    QuotaTable,
    Taken,
    TooLittle,
    filled,
    take,
)
from tests.examples import some

USERS = ("ana", "bob", DEFAULT)
CLIENTS = ("etl", "web", DEFAULT)
RATES = st.one_of(st.none(), st.integers(1, 5).map(float))


def limits(kind: QuotaKind, rate: float | None) -> QuotaLimits:
    return QuotaLimits(**{kind: rate})


entities = st.builds(
    QuotaEntity,
    st.sampled_from([*USERS, None]),
    st.sampled_from([*CLIENTS, None]),
).filter(lambda entity: entity != (None, None))
tables = st.dictionaries(
    entities,
    st.builds(
        QuotaLimits,
        producer_byte_rate=RATES,
        consumer_byte_rate=RATES,
        request_percentage=RATES,
        controller_mutation_rate=RATES,
    ),
)


def oracle(
    quotas: dict[QuotaEntity, QuotaLimits], kind: QuotaKind, user: str, client: str
) -> tuple[float, str, str] | None:
    """Return the rate, and who shares the bucket: the order is that of Kafka's documents."""
    for path, tags in [
        ((user, client), (user, client)),
        ((user, DEFAULT), (user, client)),
        ((user, None), (user, "")),
        ((DEFAULT, client), (user, client)),
        ((DEFAULT, DEFAULT), (user, client)),
        ((DEFAULT, None), (user, "")),
        ((None, client), ("", client)),
        ((None, DEFAULT), ("", client)),
    ]:
        found = quotas.get(QuotaEntity(*path))
        if found is not None and (rate := found.of(kind)) is not None:
            return rate, *tags
    return None


@given(
    tables,
    st.sampled_from(["ana", "bob", "eve"]),
    st.sampled_from(["etl", "web", "other", ""]),
)
@some
def test_the_most_specific_quota_decides_as_in_kafka(
    quotas: dict[QuotaEntity, QuotaLimits], user: str, client: str
) -> None:
    table = QuotaTable(quotas)
    for _ in range(2):  # Resolved, then remembered.
        found = table.limits_of(f"User:{user}", client) or (None,) * 4
        for kind, limit in zip(QuotaKind, found, strict=True):
            seen = None if limit is None else (limit.rate, limit.user, limit.client_id)
            assert seen == oracle(quotas, kind, user, client)


def test_a_user_may_not_be_called_default() -> None:
    """A principal of this name has the default quotas, and no others."""
    table = QuotaTable({QuotaEntity(DEFAULT, None): limits(QuotaKind.PRODUCE, 1.0)})

    found = table.limits_of(f"User:{DEFAULT}", "")

    assert found is not None
    assert found.produce == Limit(QuotaKind.PRODUCE, 1.0, DEFAULT, "")


PER_S = Limit(QuotaKind.PRODUCE, 1000.0, "ana", "")


def test_a_bucket_begins_full_and_fills_at_its_rate() -> None:
    full = filled(None, PER_S, 0)
    assert full.level == PER_S.capacity == 2000.0

    taken = take(full, PER_S, 2000, 2000)
    assert isinstance(taken, Taken)
    assert taken.bucket.level == 0.0
    assert take(taken.bucket, PER_S, 100, 100) == TooLittle(101)
    assert filled(taken.bucket, PER_S, 500).level == 500.0
    assert filled(taken.bucket, PER_S, 60_000).level == 2000.0


def test_a_percentage_is_of_one_processor() -> None:
    limit = Limit(QuotaKind.TIME, 50.0, "ana", "")

    assert limit.fill == 0.5
    assert filled(Bucket(0.0, 0), limit, 1000).level == 0.5


def test_what_is_larger_than_the_bucket_leaves_less_than_nothing() -> None:
    taken = take(filled(None, PER_S, 0), PER_S, 5000, 5000)

    assert isinstance(taken, Taken)
    assert taken.bucket.level == -3000.0
    # The next one waits until the bucket is half full.
    assert take(taken.bucket, PER_S, 5000, 5000) == TooLittle(4001)


def test_some_is_taken_ahead_only_if_it_is_there() -> None:
    taken = take(Bucket(300.0, 0), PER_S, 100, 600)

    assert taken == Taken(Bucket(0.0, 0), 300.0)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 4000)), max_size=60))
@some
def test_no_more_is_taken_than_the_rate_allows(calls: list[tuple[int, int]]) -> None:
    """In every window: what is saved up, the rate times its length, and one large request."""
    now_ms, bucket = 0, filled(None, PER_S, 0)
    taken: list[tuple[int, float]] = []
    for wait_ms, size in calls:
        now_ms += wait_ms
        bucket = filled(bucket, PER_S, now_ms)
        found = take(bucket, PER_S, size, size)
        if isinstance(found, Taken):
            bucket = found.bucket
            taken.append((now_ms, found.amount))
        else:
            later = filled(bucket, PER_S, now_ms + found.throttle_ms)
            assert isinstance(take(later, PER_S, size, size), Taken)
    for first, (began_ms, _) in enumerate(taken):
        total = 0.0
        for at_ms, amount in taken[first:]:
            total += amount
            allowed = PER_S.capacity + PER_S.rate * (at_ms - began_ms) / 1000 + amount
            assert total <= allowed + 1e-6


def test_clocks_that_differ_a_little_do_not_fill_a_bucket_twice() -> None:
    bucket = Bucket(0.0, 5000)
    # Another gateway is two seconds behind.
    assert filled(bucket, PER_S, 3000) == bucket
    assert filled(filled(bucket, PER_S, 3000), PER_S, 6000).level == 1000.0


def test_a_clock_that_was_wrong_does_not_stop_a_principal() -> None:
    wrong = Bucket(0.0, 10**12)

    right = filled(wrong, PER_S, 5000)

    assert right == Bucket(0.0, 5000)
    assert wrong.at_ms - right.at_ms > CLOCKS_APART_MS_MAX
