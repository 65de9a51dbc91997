"""What DynamoDB's errors mean for the retry loop and for the operator.

Pure: an error comes in as the answer that botocore parsed, a mapping with `Error.Code` and
`ResponseMetadata.HTTPStatusCode`, for transactions also `CancellationReasons`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final, TypeAlias

Response: TypeAlias = Mapping[str, Any]


class Failure(Enum):
    """What a failed request means for us."""

    REFUSED = auto()
    """A condition did not hold, so this attempt changed nothing."""
    LATER = auto()
    """Certainly not applied; retry."""
    SILENT = auto()
    """It may have been applied; retry."""
    HOPELESS = auto()
    """Certainly not applied, and a retry would fail as well."""


_CONDITION_FAILED: Final = "ConditionalCheckFailed"
_LATER: Final = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingError",
        "ThrottlingException",
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_DENIED: Final = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
    }
)


def failure_of(response: Response) -> Failure:
    """Return what an error response means for its request."""
    code = code_of(response)
    if code == f"{_CONDITION_FAILED}Exception":
        return Failure.REFUSED
    if code == "TransactionCanceledException":
        return _cancellation({reason["Code"] for reason in response["CancellationReasons"]})
    if code in _LATER:
        return Failure.LATER
    if response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500) >= 500:
        return Failure.SILENT
    return Failure.HOPELESS


def _cancellation(codes: set[str]) -> Failure:
    if _CONDITION_FAILED in codes:
        return Failure.REFUSED
    return Failure.LATER if codes - {"None"} <= _LATER else Failure.HOPELESS


def code_of(response: Response) -> str:
    return str(response.get("Error", {}).get("Code", ""))


def is_our_mistake(response: Response) -> bool:
    """Return whether the request itself is wrong, so that no action of an operator helps."""
    reasons = {reason["Code"] for reason in response.get("CancellationReasons", [])}
    return code_of(response) == "ValidationException" or "ValidationError" in reasons


def advice(table: str, response: Response) -> str:
    """Return what is wrong and what to do about it."""
    code, message = code_of(response), response.get("Error", {}).get("Message", "")
    if code == "ResourceNotFoundException":
        return f"there is no DynamoDB table {table} in this region; run `riacho doctor --create`"
    if code in _DENIED:
        return (
            f"DynamoDB denies access to {table}; check the credentials, and that they may"
            f" dynamodb:GetItem, BatchGetItem, Query, PutItem, DeleteItem and ConditionCheckItem:"
            f" {message}"
        )
    return f"DynamoDB table {table}: {code} {message}"
