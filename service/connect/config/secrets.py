"""Which values of a configuration are secrets: they must be references, and are masked.

A configuration is stored and shown, so a secret in it would be in backups, logs and answers. What
is stored instead says where the secret is: `service/process/references/references.py`.
"""

import re
from collections.abc import Mapping
from typing import Final

from service.connect.config.keys import Key, KeyType
from service.process.references.references import HIDDEN, masked

_REFERENCE: Final = re.compile(r"\$\{[a-z][a-z-]*:[^{}]+\}")
_PASSWORD_IN_URL: Final = re.compile(
    r"://[^/?#\s@:]*:[^/?#\s@]+@"
    r"|[?&;](?:password|passwd|pwd|passphrase|secret|token|api[._-]?key)=[^&;\s]",
    re.IGNORECASE,
)

_ALWAYS: Final = ("basic.auth.user.info", "sasl.jaas.config")
"""How keys end that hold a password, whatever their definition says."""

WHY: Final = (
    "a secret cannot be written here, because configurations are stored and shown: name where it"
    " is, with ${env:NAME}, ${file:/path:entry} or ${aws-secret:name:entry}"
)
WHY_URL: Final = (
    "the URL has a password in it, and configurations are stored and shown: write a reference like"
    " ${env:NAME} instead of the password, or use the key for passwords"
)


def is_reference(text: str) -> bool:
    """Whether `text` is one reference and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def why_secret(name: str, text: str, key: Key | None) -> str | None:
    """Return why `text` must not be stored under `name`; None: it may be.

    Of keys that no connector defines, the name says whether they hold a secret.
    """
    if not text or is_reference(text):
        return None
    if name.endswith(_ALWAYS):
        is_secret = True
    elif key is None:
        is_secret = masked({name: text})[name] == HIDDEN and not _is_address(name)
    else:
        is_secret = key.type is KeyType.PASSWORD
    if is_secret:
        return WHY
    # A reference hides the password that it stands for.
    return WHY_URL if _PASSWORD_IN_URL.search(_REFERENCE.sub("", text)) else None


def shown(config: Mapping[str, str], keys: Mapping[str, Key]) -> dict[str, str]:
    """Return `config` as answers show it: with references, and without any secret."""
    return {
        name: HIDDEN if why_secret(name, text, keys.get(name)) else text
        for name, text in config.items()
    }


def _is_address(name: str) -> bool:
    """Whether a name sounds like a secret's only because URLs may have one inside."""
    return name.lower().endswith(("url", "uri"))
