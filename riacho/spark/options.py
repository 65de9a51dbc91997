"""Options of the data source, with the names of Spark's Kafka source and sink.

An option that is unknown, does not parse, or contradicts another is an `InvalidConfig` that
says what to do: a misspelt option that is silently skipped reads the wrong records. Settings
of Kafka's own clients that only tune them (`kafka.fetch.min.bytes`, …) are skipped, so that a
job can be migrated by changing only the format and the address.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from riacho.http.identity import Credentials
from storage.errors import InvalidConfig

URL: Final = ("url", "kafka.bootstrap.servers")

CREDENTIALS: Final = ("token", "user", "password", "caFile", "clientCert", "clientKey")
"""For executors without the environment of the driver. Spark hides the first and those with
`password` in its plans, as it hides URLs."""

_TUNING: Final = (
    "kafka.client.",
    "kafka.connections.",
    "kafka.default.api.timeout.ms",
    "kafka.enable.auto.commit",
    "kafka.fetch.",
    "kafka.group.",
    "kafka.heartbeat.interval.ms",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.max.poll.",
    "kafka.metadata.",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafkaconsumer.",
    "fetchoffset.",
    "groupidprefix",
)
"""Ignored: they tune Kafka's client and do not change what is read or written."""

_TRUTH: Final = {"true": True, "false": False}


class Options:
    """The given options by name, case-insensitive; only `known` names are allowed."""

    def __init__(
        self, given: Mapping[str, str], known: Iterable[str], *, skipped: Iterable[str] = ()
    ) -> None:
        """Raise `InvalidConfig` for a name that is not known and has no `skipped` prefix."""
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower(): name for name in (*URL, *CREDENTIALS, *known)}
        prefixes = (*_TUNING, *(name.lower() for name in skipped))
        for name in self._given:
            if name not in names and not name.startswith(prefixes):
                raise InvalidConfig(
                    f"there is no option {name!r} here; those there are: "
                    + ", ".join(sorted(names.values()))
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def url(self) -> str:
        """Return the URL of the gateway: `url`, or the first of `kafka.bootstrap.servers`."""
        given = self.at_most_one(URL)
        if given is None:
            raise InvalidConfig("where is the gateway? Set url, as in http://127.0.0.1:8080")
        # Any gateway answers any call, so the first of several is enough.
        first = self._given[given].split(",")[0].strip().rstrip("/")
        return first if "://" in first else f"http://{first}"

    def credentials(self) -> Credentials:
        """Return who reads or writes; what is not given is taken from the environment."""
        token, user, password, ca_file, cert, key = map(self.text, CREDENTIALS)
        if (user is None) != (password is None):
            raise InvalidConfig("user and password need each other; set both of them")
        if key is not None and cert is None:
            raise InvalidConfig("clientKey says nothing without clientCert")
        return Credentials(
            token=token,
            basic=None if user is None or password is None else (user, password),
            ca_file=ca_file,
            client_cert=cert if cert is None or key is None else (cert, key),
        )

    def at_most_one(self, names: Iterable[str]) -> str | None:
        """Return which of `names` is given, or raise `InvalidConfig` if several are."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise InvalidConfig(f"{' and '.join(found)} contradict each other; set one of them")
        return found[0] if found else None

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._given.get(name.lower(), default)

    def choice(self, name: str, allowed: Iterable[str], default: str) -> str:
        given = self._given.get(name.lower(), default).strip().lower()
        if given not in (choices := [*allowed]):
            raise InvalidConfig(f"{name} is {given!r}; it can be {' or '.join(choices)}")
        return given

    def boolean(self, name: str, default: bool = False) -> bool:
        return _TRUTH[self.choice(name, _TRUTH, str(default).lower())]

    def integer(self, name: str, at_least: int = 1) -> int | None:
        """Return the number, or None if it is not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise InvalidConfig(f"{name} is {text!r}; it is a whole number from {at_least} on")
        return number

    def json(self, name: str, example: str) -> Any:
        """Return the option parsed as JSON; the caller has checked that it is given."""
        try:
            return json.loads(self._given[name.lower()])
        except (ValueError, RecursionError) as error:
            raise malformed(name, example) from error


def malformed(name: str, example: str) -> InvalidConfig:
    return InvalidConfig(f"{name} cannot be read; it looks like {example}")
