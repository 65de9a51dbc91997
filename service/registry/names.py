"""Subjects and contexts: a context is a registry of its own, with its own ids.

orders-value          the subject in the default context, which is called .
:.:orders-value       the same
:.staging:orders      the subject orders in the context .staging
:.staging:            the context itself, where levels and modes are set
"""

import re
from dataclasses import dataclass
from typing import Final

from service.registry.errors import invalid_subject

DEFAULT: Final = "."
ALL_CONTEXTS: Final = ":*:"
NAME_BYTES_MAX: Final = 4096

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


@dataclass(frozen=True, slots=True)
class SubjectName:
    context: str
    name: str
    """Empty: the context itself."""

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT else f":{self.context}:{self.name}"


def parse_subject(text: str, *, inside: str = DEFAULT, is_context_too: bool = False) -> SubjectName:
    """Return the subject of a qualified or plain name, or raise 42208.

    A plain name is in the context `inside`.
    """
    context, name = inside, text
    if text.startswith(":."):
        end = text.find(":", 2)
        if end > 0:
            context, name = text[1:end], text[end + 1 :]
    if (
        (not name and not is_context_too)
        or name in _RESERVED
        or _CONTROL.search(text)
        or len(text.encode(errors="replace")) > NAME_BYTES_MAX
        or "/" in context
    ):
        raise invalid_subject(text)
    return SubjectName(context, name)


def context_of(text: str | None) -> str:
    """Return the context that a parameter names: as a context, or in a qualified subject."""
    if not text:
        return DEFAULT
    if text.startswith(":."):
        return parse_subject(text, is_context_too=True).context
    return DEFAULT
