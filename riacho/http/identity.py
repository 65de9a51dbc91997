"""Who a program says it is, and whom it trusts: values, without the libraries that use them."""

from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from storage.errors import InvalidConfig

Basic: TypeAlias = tuple[str, str]
"""A user, or the id of an API key, and the password or secret."""

ClientCert: TypeAlias = str | tuple[str, str] | tuple[str, str, str]
"""Files: certificate and key together, or apart; then perhaps the password of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a program gives by itself; None: as the URL or the environment says."""

    token: str | None = field(default=None, repr=False)
    basic: Basic | None = field(default=None, repr=False)
    ca_file: str | None = None
    client_cert: ClientCert | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.token is not None and self.basic is not None:
            raise InvalidConfig("token and basic exclude each other; give one of them")


NOTHING_GIVEN: Final = Credentials()


def split_url(url: str) -> tuple[str, Basic | None]:
    """Return the URL of a gateway without credentials, and those that were in it.

    Raises `ValueError` if it is no such URL.
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError
    except ValueError:
        shown = url.rpartition("@")[2]
        detail = f"{shown!r} is no URL of a gateway; it begins with http:// or https://"
        raise ValueError(detail) from None
    basic = None
    if parts.username is not None:
        basic = unquote(parts.username), unquote(parts.password or "")
    return parts._replace(netloc=host).geturl().rstrip("/"), basic
