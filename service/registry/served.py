"""How calls of the registry are served: their errors have Confluent's form, from the door on.

It imports the rest of the registry when it is first called, since most cold starts never do.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.responses import Response

from service.http.foreign import ForeignApi
from service.security.caller import Caller

_OF_CONTEXTS: Final = frozenset({"subjects", "schemas", "config", "mode", "compatibility"})
"""Where calls begin that have another meaning in each context."""


def failed(error: Exception, caller: Caller, parameters: Mapping[str, str]) -> Response | None:
    """Return the registry's answer to an error; None: it is unexpected."""
    from service.registry import answers

    return answers.failed(error, caller, parameters)


REGISTRY: Final = ForeignApi(under="/registry", failed=failed)


def in_context(parts: Sequence[str], query: bytes) -> tuple[Sequence[str], bytes]:
    """Return parts of a path and query of the same call outside a context.

    Below `/contexts/.staging`, which clients may have as their base path, every call is about that
    context: `/contexts/.staging/subjects/a` is `/subjects/:.staging:a`.
    """
    if len(parts) < 3:
        return parts, query
    start = 1 if parts[0] == REGISTRY.under[1:] else 0
    inner = parts[start:]
    if len(inner) < 3 or inner[0] != "contexts" or inner[2] not in _OF_CONTEXTS:
        return parts, query
    # Clients write it as `.staging`, `:.staging:` or `staging`.
    name = inner[1].removeprefix(":").removesuffix(":").removeprefix(".")
    if ":" in name:
        return parts, query
    context, rest = f":.{name}:", list(inner[2:])
    parameter = ""
    match rest:
        case ["subjects" | "schemas"]:
            parameter = "subjectPrefix"
        case ["schemas", "ids", *_]:
            parameter = "subject"
        case ["config" | "mode"]:
            rest.append(context)
            query += b"&defaultToGlobal=true"
        case ["subjects" | "config" | "mode", name, *_]:
            rest[1] = _inside(context, name)
        case ["compatibility", "subjects", name, *_]:
            rest[2] = _inside(context, name)
    if parameter:
        given = dict(parse_qsl(query.decode(errors="replace"), errors="replace")).get(parameter, "")
        query += f"&{parameter}={quote(_inside(context, given), safe='')}".encode()
    return [*parts[:start], *rest], query


def _inside(context: str, name: str) -> str:
    return name if name.startswith(":.") else context + name
