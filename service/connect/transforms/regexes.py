"""Regular expressions as Java writes them, matched by RE2: in time linear in the text.

Look-around, back-references and possessive repetition are refused, since RE2 has none.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

MEMORY_BYTES_MAX: Final = 1 << 20
"""For a compiled expression."""

_GROUP_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9]*")


def compiled(pattern: str) -> Any:
    """Return the compiled expression; raise `ValueError` with what is wrong with it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise ValueError(
            f"is not a regular expression that is understood here ({text}); "
            "look-around, back-references and possessive repetition are not"
        ) from None


def replacement(text: str, expression: Any) -> Callable[[Any], str]:
    r"""Return what makes the replacement of a match: `$1`, `${name}` are groups, `\` quotes.

    Raises `ValueError` if it names a group that the expression does not have.
    """
    parts = _parts(text, expression)

    def replaced(match: Any) -> str:
        return "".join(
            part if isinstance(part, str) else (match.group(part) or "") for part in parts
        )

    return replaced


def _parts(text: str, expression: Any) -> Sequence[str | int]:
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            if at + 1 == len(text):
                raise ValueError("has a backslash with nothing after it")
            parts.append(text[at + 1])
            at += 2
        elif text[at] == "$":
            group, at = _group(text, at + 1, expression)
            parts.append(group)
        else:
            parts.append(text[at])
            at += 1
    return parts


def _group(text: str, at: int, expression: Any) -> tuple[int, int]:
    """Return the group that a reference names, and where the text goes on after it."""
    if text[at : at + 1] == "{":
        end = text.find("}", at)
        name = text[at + 1 : end] if end > 0 else ""
        if _GROUP_NAME.fullmatch(name) is None:
            raise ValueError("has a `${` without the name of a group and a `}`")
        if name not in expression.groupindex:
            raise ValueError(f"names the group {name!r}, which the expression does not have")
        return expression.groupindex[name], end + 1
    digits = re.compile(r"[0-9]+").match(text, at)
    if digits is None:
        raise ValueError("has a `$` without a group; write `\\$` for the sign itself")
    # As many digits as still name a group: `$12` is group 1 and a 2 if there are less than 12.
    group = int(text[at])
    if group > expression.groups:
        raise ValueError(f"names the group {group}, of {expression.groups}")
    end = at + 1
    while end < digits.end() and group * 10 + int(text[end]) <= expression.groups:
        group = group * 10 + int(text[end])
        end += 1
    return group, end
