"""Function of the gateway, behind an HTTP API or a Function URL."""

from service.serverless.gateway import ServerlessGateway

handler = ServerlessGateway()
