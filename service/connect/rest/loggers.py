"""Calls about Connect itself: its version, its health, and what its loggers write."""

import logging
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.connect.rest.answers import ConnectQuery, answer, caller_in, read_as
from service.connect.rest.bodies import LevelOfLogBody
from service.connect.rest.errors import ConnectError, bad_request
from service.log.gateway import Gateway
from service.process.version import VERSION
from service.security.acls import CLUSTER_NAME, Operation, ResourceType

_ROOT: Final = "root"
_OURS: Final = "riacho"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_BODY: Final = msgspec.json.Decoder(LevelOfLogBody)


class WorkerCalls:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def about(self, _: Request) -> Response:
        """Say what answers here."""
        return answer({"version": VERSION, "commit": "", "kafka_cluster_id": "riacho"})

    async def health(self, _: Request) -> Response:
        """Say that calls are answered here."""
        message = "Worker has completed startup and is ready to handle requests."
        return answer({"status": "healthy", "message": message})

    async def list_loggers(self, _: Request) -> Response:
        """List the loggers of this gateway that have a level of their own."""
        return answer({_shown_name(each): _level_of(each) for each in _loggers() if each.level})

    async def show_logger(self, request: Request) -> Response:
        """Show the level of a logger."""
        return answer(_level_of(_logger(request)))

    async def set_level(self, request: Request) -> Response:
        """Set the level of a logger of this gateway, and of those below it."""
        level = (await read_as(request, self._gateway, _BODY)).level.strip().upper()
        if level not in _LEVELS:
            raise ConnectError(404, f"Invalid log level '{level:.100}'.")
        if "cluster" in ConnectQuery(request).texts("scope"):
            raise bad_request("levels can be set at one gateway only: scope=worker")
        logger = _logger(request)
        changed = [
            each
            for each in _loggers()
            if each is logger or each.name.startswith(f"{logger.name}.") or logger.name == _OURS
        ]
        for each in changed:
            each.setLevel(_LEVELS[level])
        caller_in(request).changed(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
        return answer(sorted(_shown_name(each) for each in changed))


def _loggers() -> list[logging.Logger]:
    known = logging.getLogger().manager.loggerDict
    below = [each for name, each in sorted(known.items()) if name.startswith(f"{_OURS}.")]
    return [logging.getLogger(_OURS), *(each for each in below if isinstance(each, logging.Logger))]


def _logger(request: Request) -> logging.Logger:
    name = request.path_params["logger"]
    found = next((each for each in _loggers() if _shown_name(each) == name), None)
    if found is None:
        raise ConnectError(404, f"Logger {name:.300} not found.")
    return found


def _shown_name(logger: logging.Logger) -> str:
    return _ROOT if logger.name == _OURS else logger.name


def _level_of(logger: logging.Logger) -> dict[str, Any]:
    level = logging.getLevelName(logger.getEffectiveLevel())
    return {
        "level": {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(level, level),
        "last_modified": None,
    }
