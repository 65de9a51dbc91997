"""The gateway behind the Lambda Web Adapter: `lambdas/web` starts this on the port that it names.

It listens on loopback only, where nobody but the adapter is. So this is the one process that may
believe the adapter's header about callers, if `RIACHO_ADAPTER_IDENTITY` says so.
"""

import sys

from starlette.types import ASGIApp

from service.security.oidc.claims import named_by
from service.security.tls.listening import Listening
from service.serve import lasting_app, run
from service.serverless.identity import FromAdapter
from service.serverless.settings import AdapterSettings, security
from service.settings import Settings

HOST = "127.0.0.1"


def app_behind_adapter() -> ASGIApp:
    """Return the gateway, which learns from the adapter who calls."""
    name_of = named_by(Settings())
    return FromAdapter(lasting_app(), is_believed=AdapterSettings().identity, name_of=name_of)


def main() -> None:
    """Serve until signalled to stop. Raises `InvalidConfig`."""
    # Loopback would mean that security is off; but callers come through the adapter from anywhere.
    where = Listening(host=HOST, port=int(sys.argv[1]), security=security())
    run(where, app="service.serverless.web:app_behind_adapter")


if __name__ == "__main__":
    main()
