"""A configuration as its values: parsed by the definitions of its keys."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.connect.config.keys import REQUIRED, Config, Key, KeyType
from service.connect.data.errors import ConfigFault

_BOOLEANS = {"true": True, "false": False}


def parse(key: Key, text: str) -> Any:
    """Return the value of `key` that `text` says; raise `ValueError` in words that name both."""
    text = text.strip()
    match key.type:
        case KeyType.BOOLEAN:
            if text.lower() not in _BOOLEANS:
                raise ValueError(f"{text!r} is not true or false")
            return _BOOLEANS[text.lower()]
        case KeyType.INT | KeyType.LONG:
            bits = 31 if key.type is KeyType.INT else 63
            try:
                number = int(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a whole number") from None
            if not -(1 << bits) <= number < 1 << bits:
                raise ValueError(f"{text} does not fit {bits + 1} bits")
            return number
        case KeyType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a number") from None
        case KeyType.LIST:
            return [part.strip() for part in text.split(",")] if text else []
        case _:
            return text


class Values:
    """The parsed values of a configuration; `values["topics"]`, with defaults filled in.

    Raises `ConfigFault` that names every key that is missing or wrong. Keys that `keys` does not
    define are left out: `service/connect/config/validation.py` refuses them.
    """

    def __init__(self, keys: Sequence[Key], config: Config) -> None:
        self.raw: Config = config
        self._parsed: dict[str, Any] = {}
        problems: dict[str, str] = {}
        for key in keys:
            try:
                self._parsed[key.name] = value_of(key, config)
            except ValueError as error:
                problems[key.name] = str(error)
        if problems:
            raise ConfigFault(problems)

    def __getitem__(self, name: str) -> Any:
        return self._parsed[name]

    def below(self, prefix: str) -> Mapping[str, str]:
        """Return what the configuration says below `prefix`, without it."""
        return {
            name[len(prefix) :]: text for name, text in self.raw.items() if name.startswith(prefix)
        }


def value_of(key: Key, config: Config) -> Any:
    """Return the value of `key`, or its default; raise `ValueError` if it is missing or wrong."""
    text = config.get(key.name)
    if text is None:
        if key.default is REQUIRED:
            raise ValueError("is required and has no default")
        return key.default
    value = parse(key, text)
    if key.choices and str(value).lower() not in {each.lower() for each in key.choices}:
        raise ValueError(f"must be one of {', '.join(key.choices)}")
    wrong = None if key.check is None else key.check(key.name, value)
    if wrong is not None:
        raise ValueError(wrong)
    return value
