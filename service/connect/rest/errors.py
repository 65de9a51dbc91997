"""Errors of Connect's calls, as Kafka's clients know them: a status and a sentence.

They are no `RiachoError`: these calls are another protocol over HTTP, whose errors are fixed.
"""

from collections.abc import Sequence


class ConnectError(Exception):
    """Refuses a call of Connect."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def bad_request(why: str) -> ConnectError:
    return ConnectError(400, why)


def no_connector(name: str) -> ConnectError:
    return ConnectError(404, f"Connector {name} not found")


def no_task(connector: str, number: object) -> ConnectError:
    return ConnectError(404, f"Unknown task: {connector}-{number}")


def exists(name: str) -> ConnectError:
    return ConnectError(409, f"Connector {name} already exists")


def invalid(errors: Sequence[str]) -> ConnectError:
    """Return the error of a configuration with these problems."""
    return bad_request(
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
        + "\n".join(errors)
        + "\nYou can also find the above list of errors at the endpoint"
        " `/connector-plugins/{connectorType}/config/validate`"
    )


def not_stopped(name: str) -> ConnectError:
    return bad_request(
        "Connectors must be in the STOPPED state before their offsets can be modified. This can be"
        f" done for the specified connector by issuing a 'PUT' request to the"
        f" '/connectors/{name}/stop' endpoint"
    )
