"""`${provider:what}` in a setting stands for a secret that is kept elsewhere, as in Kafka.

    ${env:NAME}                          a variable of the environment
    ${file:/run/secrets/password}        a whole file, without the line break at its end
    ${file:/etc/db.properties:password}  one entry of a properties file
    ${aws-secret:name}                   a secret of AWS Secrets Manager, by its name or ARN
    ${aws-secret:name:password}          one entry of a secret that is a JSON object

Whoever needs a value resolves it then, keeps it no longer than the work it is for, and never stores
it: what is stored, listed and logged is the reference. A value is taken as it is: a reference in it
stands for itself. Errors name the reference, never a value.

An operator may limit what can be named, since others write configurations, too: files to some
directories, variables to those that match a pattern, of which RE2 is the judge. Where callers need
credentials, only what these limits name can be: `SecretReferences.of_others`.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from service.process.references.properties import parse_properties
from service.settings import Settings
from storage.errors import InvalidConfig

HIDDEN: Final = "[hidden]"

FILE_BYTES_MAX: Final = 64 * 1024
HIDEABLE_CHARS_MIN: Final = 4
"""Shorter values are not searched for in texts: they would be found everywhere."""

_REFERENCE: Final = re.compile(r"\$\{(?P<provider>[a-z][a-z-]*):(?P<what>[^{}]+)\}")
_ARN_PARTS: Final = 7

_SECRET_NAME: Final = re.compile(
    r"password|passwd|passphrase|secret|token|credential|api[._-]?key|access[._-]?key"
    r"|private[._-]?key|sasl\.jaas\.config|connection[._-]?(string|url|uri)|\bauth\b",
    re.IGNORECASE,
)

ReadSecret = Callable[[str], str]
"""Returns the text of a secret of AWS. Raises `InvalidConfig` and `Unavailable`."""


def names_secret(text: str) -> bool:
    """Whether there is a reference in `text`."""
    return _REFERENCE.search(text) is not None


def masked(config: Mapping[str, str]) -> dict[str, str]:
    """Return `config` as it may be shown.

    A reference is no secret, and says where the value comes from. Any other value under a name
    that sounds like a secret's is hidden.
    """
    return {name: _masked(name, text) for name, text in config.items()}


def _masked(name: str, text: str) -> str:
    if not text or _SECRET_NAME.search(name) is None or _REFERENCE.fullmatch(text):
        return text
    return HIDDEN


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration with its secrets. It is for one piece of work, and is never stored."""

    config: Mapping[str, str] = field(repr=False)
    secrets: frozenset[str] = field(repr=False)

    def hide(self, text: str) -> str:
        """Return `text`, such as an error of a library, without the secrets that it repeats."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= HIDEABLE_CHARS_MIN:
                text = text.replace(secret, HIDDEN)
        return text


class SecretReferences:
    """Resolves references within limits."""

    def __init__(
        self,
        *,
        environment: Mapping[str, str] = os.environ,
        files: str = "",
        env: str = "",
        read_secret: ReadSecret | None = None,
    ) -> None:
        """`files` are directories with commas, `env` is a pattern; empty: no limit.

        Raises `InvalidConfig`.
        """
        self._environment = environment
        self._directories = tuple(Path(each.strip()) for each in files.split(",") if each.strip())
        self._is_allowed = _matcher(env) if env else None
        self._read_secret = read_secret or _secrets_manager
        self._is_open = True

    @classmethod
    def of(cls, settings: Settings) -> "SecretReferences":
        return cls(files=settings.secret_files, env=settings.secret_env)

    def of_others(self) -> "SecretReferences":
        """Return these for configurations of those who may not know all that this process knows.

        Limits that are empty allow nothing then: a gateway's environment and files have keys that
        open more than any of its callers may.
        """
        limited = copy(self)
        limited._is_open = False
        return limited

    def resolve(self, text: str) -> str:
        """Return `text` with values instead of references. It may wait for files and for AWS.

        Raises `InvalidConfig` if there is no such value or it may not be named, and `Unavailable`
        if AWS does not answer.
        """
        return _REFERENCE.sub(self._value, text)

    def resolve_all(self, config: Mapping[str, str]) -> Resolved:
        """Resolve every value of `config`; as `resolve`."""
        secrets: set[str] = set()

        def value(found: re.Match[str]) -> str:
            resolved = self._value(found)
            secrets.add(resolved)
            return resolved

        return Resolved(
            {name: _REFERENCE.sub(value, text) for name, text in config.items()},
            frozenset(secrets),
        )

    async def resolved(self, config: Mapping[str, str]) -> Resolved:
        """Resolve in another thread; as `resolve_all`."""
        if not any(names_secret(text) for text in config.values()):
            return Resolved(dict(config), frozenset())
        return await asyncio.to_thread(self.resolve_all, config)

    def _value(self, found: re.Match[str]) -> str:
        what = found["what"]
        match found["provider"]:
            case "env":
                return self._variable(what, found[0])
            case "file":
                return self._of_file(what, found[0])
            case "aws-secret":
                return self._of_aws(what, found[0])
        raise InvalidConfig(
            f"{found[0]}: there is no provider {found['provider']!r}; known are env, file and"
            " aws-secret"
        )

    def _variable(self, name: str, reference: str) -> str:
        if self._is_allowed is None:
            self._check_open("RIACHO_SECRET_ENV", "variables", reference)
        elif not self._is_allowed(name):
            raise InvalidConfig(f"{reference}: RIACHO_SECRET_ENV does not allow this variable")
        value = self._environment.get(name)
        if value is None:
            raise InvalidConfig(f"{reference}: the environment has no such variable")
        return value

    def _of_file(self, what: str, reference: str) -> str:
        name, colon, entry = what.rpartition(":")
        path = Path(name if colon else what)
        if not path.is_absolute():
            raise InvalidConfig(f"{reference}: the path must begin with a slash")
        text = _text_of(self._checked(path, reference), reference)
        if not colon:
            return text.removesuffix("\n").removesuffix("\r")
        value = parse_properties(text).get(entry)
        if value is None:
            raise InvalidConfig(f"{reference}: the file has no such entry")
        return value

    def _checked(self, path: Path, reference: str) -> Path:
        """Return where `path` really leads, or raise `InvalidConfig` if that is not allowed."""
        if not self._directories:
            self._check_open("RIACHO_SECRET_FILES", "directories of files", reference)
        try:
            real = path.resolve(strict=True)
            allowed = [each.resolve() for each in self._directories]
        except (OSError, RuntimeError):
            real, allowed = None, []
        if self._directories and not any(real and real.is_relative_to(each) for each in allowed):
            # The same whether there is such a file or not.
            raise InvalidConfig(f"{reference}: no file in the directories of RIACHO_SECRET_FILES")
        if real is None:
            raise InvalidConfig(f"{reference}: there is no such file")
        return real

    def _check_open(self, setting: str, what: str, reference: str) -> None:
        if not self._is_open:
            raise InvalidConfig(
                f"{reference}: with security on, {setting} says which {what} connectors may name;"
                " it is empty"
            )

    def _of_aws(self, what: str, reference: str) -> str:
        parts = what.split(":")
        length = _ARN_PARTS if what.startswith("arn:") else 1
        if len(parts) < length:
            raise InvalidConfig(f"{reference}: this is no ARN of a secret")
        name, entry = ":".join(parts[:length]), ":".join(parts[length:])
        text = self._read_secret(name)
        if not entry:
            return text
        try:
            value = json.loads(text).get(entry)
        except (ValueError, AttributeError, RecursionError):
            raise InvalidConfig(f"{reference}: the secret is not a JSON object") from None
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise InvalidConfig(f"{reference}: the secret has no such entry")
        return str(value)


def _text_of(path: Path, reference: str) -> str:
    try:
        # Without waiting: what was a file a moment ago could be a pipe by now.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidConfig(f"{reference}: this is no regular file")
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"{reference}: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{reference}: the file has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise InvalidConfig(f"{reference}: the file is not UTF-8") from None


def _matcher(pattern: str) -> Callable[[str], bool]:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error:
        raise InvalidConfig(f"RIACHO_SECRET_ENV: {pattern!r} is no pattern of RE2") from None
    return lambda name: compiled.fullmatch(name) is not None


def _secrets_manager(name: str) -> str:
    # Imported here: the SDK is for those who name its secrets.
    from service.process.references.secrets_manager import read_secret

    return read_secret(name)
