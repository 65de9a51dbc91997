"""Configurations of connectors in files, as people have them from Kafka Connect.

{"name": "c", "config": {…}}     what is sent to Kafka Connect's REST API
{"connector.class": …, …}        a configuration alone
connector.class=…                properties, as of a standalone worker
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from riacho.cli.output import bad_usage, pairs

_PAIR: Final = re.compile(r"((?:\\.|[^\\=:\s])+)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_config(path: str | None, changes: Sequence[str]) -> dict[str, str]:
    """Return the configuration of a file, `-` for stdin, with `key=value` texts over it."""
    config = {} if path is None else _parsed(_text(path), path)
    config.update(pairs(changes, "--config"))
    if not config:
        raise bad_usage("give a FILE, or --config key=value", "FILE")
    return config


def _text(path: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return raw.decode()
    except OSError as error:
        raise bad_usage(f"{path}: {error.strerror}", "FILE") from None
    except UnicodeDecodeError:
        raise bad_usage(f"{path} is not text in UTF-8", "FILE") from None


def _parsed(text: str, path: str) -> dict[str, str]:
    if not text.lstrip().startswith("{"):
        return parse_properties(text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise bad_usage(f"{path} is not JSON: {error}", "FILE") from None
    config = document.get("config", document)
    if not isinstance(config, dict) or any(isinstance(e, dict | list) for e in config.values()):
        raise bad_usage(f"{path} has no configuration: keys with texts", "FILE")
    found = {key: _value(value) for key, value in config.items() if value is not None}
    if "config" in document and isinstance(document.get("name"), str):
        found.setdefault("name", document["name"])
    return found


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_properties(text: str) -> dict[str, str]:
    """Return the entries of a properties file of Java; the last one counts."""
    joined = re.sub(r"(?<!\\)((?:\\\\)*)\\(?:\r\n|\r|\n)[ \t\f]*", r"\1", text)
    found: dict[str, str] = {}
    for line in joined.splitlines():
        pair = _PAIR.fullmatch(line.strip(" \t\f"))
        if pair is not None and line.lstrip(" \t\f")[0] not in "#!":
            found[_plain(pair[1])] = _plain(pair[2])
    return found


def _plain(text: str) -> str:
    def value(escape: re.Match[str]) -> str:
        return chr(int(escape[1], 16)) if escape[1] else _LETTERS.get(escape[2], escape[2])

    return _ESCAPE.sub(value, text)
