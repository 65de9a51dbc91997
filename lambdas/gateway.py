"""Function of the gateway, behind an HTTP API or a Function URL."""

# Before imports of anything that would load these modules, where installed, without using them.
from service.process.without_pandas import refuse

refuse("httpx", "pandas")

from service.serverless.gateway import ServerlessGateway  # noqa: E402

handler = ServerlessGateway()
