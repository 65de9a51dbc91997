"""Replies of the gateway as values."""

from typing import TypeVar

from riacho.errors import new_error
from riacho.http.gateway import Reply
from storage.errors import OutcomeUnknown

T = TypeVar("T")


def parsed(reply: Reply, kind: type[T], field: str | None = None) -> T:
    """Return the body, or one `field` of it, as `kind`; unknown fields are skipped."""
    import msgspec

    document = reply.json()
    try:
        return msgspec.convert(document if field is None else document[field], kind)
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        detail = f"the reply is not as expected; is the gateway newer than this client? {error}"
        raise new_error(OutcomeUnknown, detail, retryable=False) from error
