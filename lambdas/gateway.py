"""Function of the gateway, behind an HTTP API or a Function URL."""

# Before anything that would import them, where they are installed, and not use them.
from service.process.without_pandas import refuse

refuse("httpx", "pandas")

from service.serverless.gateway import ServerlessGateway  # noqa: E402

handler = ServerlessGateway()
