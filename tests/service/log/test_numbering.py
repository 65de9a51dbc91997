"""From headers to claims: what makes no sense is refused with a sentence that helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.log.lane_buffers import NO_CLAIMS
from service.log.numbering import (
    NO_SENDER,
    Numbered,
    SenderHeaders,
    Sequence,
    claims_of,
    parse_sender,
    sequences_of,
)
from storage.errors import InvalidRequest
from storage.head.producers import Claim
from storage.stores.metadata import Check
from tests.examples import some
from tests.service.helpers.gateways import Cluster
from tests.storage.helpers.logs import batch_of

ID, EPOCH = "riacho-producer-id", "riacho-producer-epoch"
SEQUENCE, TRANSACTION = "riacho-sequence", "riacho-transaction"
WHO = {ID: "4012", EPOCH: "3"}


def test_without_headers_there_is_no_sender() -> None:
    assert parse_sender({"content-type": "application/json"}) is NO_SENDER


@pytest.mark.parametrize(
    ("text", "sequence"),
    [
        ("0", 0),
        (" 17 ", 17),
        ("2147483647", 2**31 - 1),
        ("0=17", {0: 17}),
        ("0=17,2=4", {0: 17, 2: 4}),
        (" 0 = 17 , 2 = 2147483647 ", {0: 17, 2: 2**31 - 1}),
    ],
)
def test_a_sequence_is_a_number_or_one_for_each_partition(text: str, sequence: Sequence) -> None:
    assert parse_sender({**WHO, SEQUENCE: text}) == SenderHeaders(
        producer=(4012, 3), sequence=sequence
    )


def test_a_transaction_needs_no_producer_and_may_have_sequences() -> None:
    assert parse_sender({TRANSACTION: "a.5.6"}) == SenderHeaders(transaction_id="a.5.6")
    assert parse_sender({TRANSACTION: "a.5.6", SEQUENCE: "1"}) == SenderHeaders(
        transaction_id="a.5.6", sequence=1
    )


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({ID: "4"}, "belong together"),
        ({EPOCH: "4"}, "belong together"),
        ({SEQUENCE: "4"}, "POST /v1/producers"),
        ({**WHO, ID: "0"}, "from 1 to"),
        ({**WHO, ID: "9007199254740992"}, "from 1 to 9007199254740991"),
        ({**WHO, ID: "-1"}, "must be a number"),
        ({**WHO, ID: "+1"}, "must be a number"),
        ({**WHO, ID: "1_0"}, "must be a number"),
        ({**WHO, ID: "٣"}, "must be a number"),
        ({**WHO, ID: ""}, "must be a number"),
        ({**WHO, ID: "9" * 5000}, "must be a number"),
        ({**WHO, EPOCH: "32768"}, "from 0 to 32767"),
        ({**WHO, SEQUENCE: "2147483648"}, "from 0 to 2147483647"),
        ({**WHO, SEQUENCE: ""}, "must be a number"),
        ({**WHO, SEQUENCE: "1,2"}, "must be a number"),
        ({**WHO, SEQUENCE: "0=1,"}, "must be a number"),
        ({**WHO, SEQUENCE: "=1"}, "must be a number"),
        ({**WHO, SEQUENCE: "0="}, "must be a number"),
        ({**WHO, SEQUENCE: "0=1=2"}, "must be a number"),
        ({**WHO, SEQUENCE: "0=2147483648"}, "from 0 to 2147483647"),
        ({**WHO, SEQUENCE: "2147483648=0"}, "from 0 to 2147483647"),
        ({**WHO, SEQUENCE: "0=1,00=2"}, "partition 0 is given twice"),
        ({**WHO, SEQUENCE: ",".join(f"{n}=0" for n in range(1001))}, "at most 1000"),
    ],
)
def test_what_makes_no_sense_is_refused(headers: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        parse_sender(headers)


def test_limits_are_part_of_what_is_taken() -> None:
    many = dict.fromkeys(range(1000), 0)
    text = ",".join(f"{partition}=0" for partition in many)
    assert parse_sender({**WHO, SEQUENCE: text}).sequence == many

    assert parse_sender({**WHO, ID: "7".zfill(19)}).producer == (7, 3)
    with pytest.raises(InvalidRequest, match="must be a number"):
        parse_sender({**WHO, ID: "7".zfill(20)})


def test_an_empty_name_of_a_transaction_is_left_to_who_looks_for_it() -> None:
    assert parse_sender({TRANSACTION: ""}) == SenderHeaders(transaction_id="")


@some
@given(st.dictionaries(st.sampled_from([ID, EPOCH, SEQUENCE, TRANSACTION]), st.text(max_size=9)))
def test_any_headers_are_a_sender_or_an_invalid_request(headers: dict[str, str]) -> None:
    try:
        parse_sender(headers)
    except InvalidRequest:
        return


def test_one_number_is_for_one_partition() -> None:
    one, two = batch_of(b"a"), batch_of(b"b", b"c")

    assert sequences_of({5: two}, 17) == {5: 17}
    assert sequences_of({5: two, 1: one}, {1: 3, 5: 4, 9: 0}) == {5: 4, 1: 3}
    with pytest.raises(InvalidRequest, match=r"partitions 1, 5: .*1=0,5=0,…"):
        sequences_of({5: two, 1: one}, 17)
    with pytest.raises(InvalidRequest, match="no number for partition 5"):
        sequences_of({5: two, 1: one}, {1: 3})


def test_of_many_partitions_some_are_named() -> None:
    parts = dict.fromkeys(range(12), batch_of(b"a"))
    with pytest.raises(InvalidRequest, match=r"partitions 0, 1, [0-8, ]+, 9: .*\(0=0,1=0,…\)"):
        sequences_of(parts, 17)


@pytest.mark.anyio
async def test_claims_are_numbered_within_their_lane() -> None:
    topic = await Cluster().topic(partitions=6, lane_partitions=4)
    parts = {1: batch_of(b"a"), 5: batch_of(b"b", b"c")}
    fence = Check("txn/a", "v1")

    claims = claims_of(
        topic,
        parts,
        Numbered(producer_id=7, epoch=2, sequence={1: 10, 5: 20}, fence=fence),
    )

    assert claims.by_partition == {1: Claim(1, 7, 2, 10, 1), 5: Claim(1, 7, 2, 20, 2)}
    assert claims.fence == fence
    assert claims_of(topic, parts, None) is NO_CLAIMS
