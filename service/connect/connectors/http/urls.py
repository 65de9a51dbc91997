"""URLs as the HTTP connectors take them.

httpx reads them, as it does for requests. It is imported by the first URL: configurations are
checked by functions, too, which load it for nothing else.
"""

from typing import TYPE_CHECKING

from service.connect.data.errors import TaskFault
from service.process.without_pandas import permit

if TYPE_CHECKING:
    import httpx


def parsed_url(text: str) -> "httpx.URL":
    """Return the URL. Raises `TaskFault` in words if it is none that connectors may use."""
    permit("httpx")
    import httpx

    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError) as error:
        raise TaskFault(f"not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise TaskFault(f"{shown(url)} is not a URL of http or https")
    if url.userinfo:
        raise TaskFault(f"the URL of {url.host} has credentials: set auth.type instead")
    return url


def shown(url: "httpx.URL") -> str:
    """Return the URL without its query, which may hold a secret."""
    return str(url.copy_with(query=None, fragment=None, username="", password=""))
