"""How metadata looks in DynamoDB, and what a refused write means. Pure: no SDK, no network.

One table, one item per key:

    pk (S)  the collection     sk (S)  the rest of the key
    v  (B)  the value          t  (S)  the version, which is the token of the write

Every condition asks for the item back when it fails, so a conflict costs no further read.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

from storage.errors import MetadataConflict, OutcomeUnknown
from storage.stores.metadata import Check, Delete, Op, Put, Versioned, collection_of

Item: TypeAlias = Mapping[str, Mapping[str, Any]]
Request: TypeAlias = dict[str, Any]
Found: TypeAlias = Mapping[str, Versioned | None]

CLIENT_TOKEN_CHARS_MAX: Final = 36

_ABSENT: Final = "attribute_not_exists(pk)"
_UNCHANGED: Final = "t = :expected"


def key_item(key: str) -> Item:
    collection, rest = collection_of(key)
    return {"pk": {"S": collection}, "sk": {"S": rest}}


def key_of(item: Item) -> str:
    return f"{item['pk']['S']}/{item['sk']['S']}"


def versioned(item: Item | None) -> Versioned | None:
    """Return what `item` holds; DynamoDB leaves out, or leaves empty, an item that is not there."""
    return Versioned(item["v"]["B"], item["t"]["S"]) if item else None


def write_request(table: str, ops: Sequence[Op], version: str) -> tuple[str, Request]:
    """Return the operation, as the SDK names its method, and the request that does `ops`."""
    if len(ops) == 1:
        [op] = ops
        kind, action = _action(table, op, version)
        assert kind != "ConditionCheck", "DynamoDB can check without writing only among others"
        return ("put_item" if kind == "Put" else "delete_item"), action
    return "transact_write_items", {
        "TransactItems": [
            {kind: action} for kind, action in (_action(table, op, version) for op in ops)
        ],
        # DynamoDB recognises a retry by the same token. Versions are unique.
        "ClientRequestToken": _client_token(version),
    }


def _action(table: str, op: Op, version: str) -> tuple[str, Request]:
    condition = _condition(table, op.expected)
    match op:
        case Put():
            item = {**key_item(op.key), "v": {"B": op.value}, "t": {"S": version}}
            return "Put", {**condition, "Item": item}
        case Delete():
            return "Delete", {**condition, "Key": key_item(op.key)}
        case Check():
            return "ConditionCheck", {**condition, "Key": key_item(op.key)}


def _condition(table: str, expected: str | None) -> Request:
    request: Request = {
        "TableName": table,
        "ConditionExpression": _ABSENT if expected is None else _UNCHANGED,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if expected is not None:
        request["ExpressionAttributeValues"] = {":expected": {"S": expected}}
    return request


def _client_token(version: str) -> str:
    if len(version) <= CLIENT_TOKEN_CHARS_MAX:
        return version
    return sha256(version.encode()).hexdigest()[:CLIENT_TOKEN_CHARS_MAX]


def refusal(
    ops: Sequence[Op], version: str, found: Found, *, ambiguous: bool
) -> MetadataConflict | OutcomeUnknown | None:
    """Return what to raise for a refused write; None if an earlier attempt of ours was applied.

    `found` holds the items whose conditions failed. `ambiguous` says that an earlier attempt
    may have been applied although its reply was lost.

    An item with our version shows that all of `ops` were applied. Without one, the write whose
    reply was lost may still have been applied and overwritten since: the outcome is unknown.
    """
    if any(item is not None and item.version == version for item in found.values()):
        return None
    if not ambiguous:
        return MetadataConflict(found)
    if _only_deletes_failed(ops, found):
        return None
    return OutcomeUnknown(
        f"no reply to a write of {', '.join(op.key for op in ops)}, and the items have changed"
        " since; read them again to see whether it happened"
    )


def _only_deletes_failed(ops: Sequence[Op], found: Found) -> bool:
    """Return whether `ops` write nothing but deletions, and all those items are gone."""
    deleted = {op.key for op in ops if isinstance(op, Delete)}
    return (
        not any(isinstance(op, Put) for op in ops)
        and found.keys() == deleted
        and all(item is None for item in found.values())
    )
