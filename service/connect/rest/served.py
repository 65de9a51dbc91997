"""How calls of Connect are served: their errors have Kafka's form, from the door on.

It imports the rest of Connect when it is first called, since most cold starts never do.
"""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from service.http.foreign import ForeignApi
from service.security.caller import Caller


def failed(error: Exception, caller: Caller, parameters: Mapping[str, str]) -> Response | None:
    """Return Connect's answer to an error; None: it is unexpected."""
    from service.connect.rest import answers

    return answers.failed(error, caller, parameters)


CONNECT: Final = ForeignApi(under="/connect", failed=failed)
