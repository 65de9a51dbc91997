"""Schemas that would cost too much, or never end: refused before anything is compiled.

A value is checked *in place* by `allOf`, `anyOf`, `oneOf`, `not`, `if` and `$ref`: all of them
look at the same value again. So a few lines that name each other can ask for more checks of one
value than there are atoms; we count them, over the graph of references, without doing them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from storage.schemas.json_schema.documents import Documents, SchemaPlace
from storage.schemas.source import InvalidSchema

REFERENCES_MAX: Final = 5_000
"""`$ref`s of a schema; the time to compile grows with their square."""

CHECKS_MAX: Final = 2_000
"""Schemas that look at one value in place."""

PATTERN_STATES_MAX: Final = 100_000
"""Characters of all patterns, counted as often as they are repeated: `a{100}` has 100. About
200 bytes each, once compiled."""

_CLASS_STATES: Final = 200
r"""A class of Unicode, such as `\p{L}`."""

_IN_PLACE: Final = ("not", "if", "then", "else")
_COMBINED: Final = ("allOf", "anyOf", "oneOf")
_DEPENDENT: Final = ("dependencies", "dependentSchemas")
_TOKEN: Final = re.compile(
    r"\{(?P<times>\d{1,6})(?:,(?P<most>\d{0,6}))?\}"
    r"|\\[pP]\{[^}]*\}|\\.|\[\^?(?:\\.|[^\]\\])*\]|.",
    re.DOTALL,
)
"""A repetition, an escape, a class of characters, or one character."""

_UNICODE_CLASS: Final = re.compile(r"\\[pP]")


def check(documents: Documents) -> int:
    """Raise `InvalidSchema` if data could not be checked in reasonable time, or never.

    Return how many schemas look at one value, at most.
    """
    references = states = 0
    for path, place in documents.places:
        if isinstance(place.schema, bool):
            continue
        references += isinstance(place.schema.get("$ref"), str)
        if references > REFERENCES_MAX:
            raise InvalidSchema(
                f"a schema and its references have at most {REFERENCES_MAX:,} `$ref`s"
            )
        states += sum(states_of(pattern) for pattern in patterns_of(place.schema))
        if states > PATTERN_STATES_MAX:
            raise InvalidSchema(
                f"the patterns of a schema have at most {PATTERN_STATES_MAX:,} states together, "
                f"repetitions counted; the one at {path} exceeds it"
            )
    return _checks_in_place(documents)


@dataclass(slots=True)
class _Frame:
    place: SchemaPlace
    below: Iterator[SchemaPlace]
    checks: int = 1


def _checks_in_place(documents: Documents) -> int:
    """Count without recursion: a chain of references may be longer than Python's stack."""
    known: dict[int, int] = {}
    for _, start in documents.places:
        if id(start.schema) in known:
            continue
        frames = [_Frame(start, _in_place(documents, start))]
        underway = {id(start.schema)}
        while frames:
            frame = frames[-1]
            below = next(frame.below, None)
            if below is None:
                frames.pop()
                underway.discard(id(frame.place.schema))
                known[id(frame.place.schema)] = frame.checks
                if frames:
                    frames[-1].checks += frame.checks
            elif (key := id(below.schema)) in underway:
                raise _loop(frames, key)
            elif key in known:
                frame.checks += known[key]
            else:
                frames.append(_Frame(below, _in_place(documents, below)))
                underway.add(key)
            if frame.checks > CHECKS_MAX:
                raise InvalidSchema(
                    f"at most {CHECKS_MAX:,} schemas may look at one value; `allOf`, `anyOf`, "
                    "`oneOf` and `$ref` multiply them here"
                )
    return max(known.values(), default=1)


def _in_place(documents: Documents, place: SchemaPlace) -> Iterator[SchemaPlace]:
    """Yield the schemas that look at the same value as the one in `place`."""
    schema = place.schema
    if isinstance(schema, bool):
        return
    yield from documents.targets(place)
    if "$ref" in schema and place.draft.ref_stands_alone:
        return
    for keyword in _IN_PLACE:
        if isinstance(member := schema.get(keyword), dict | bool):
            yield place.at(member)
    for keyword in _COMBINED:
        if isinstance(members := schema.get(keyword), list):
            yield from (place.at(member) for member in members)
    for keyword in _DEPENDENT:
        if isinstance(named := schema.get(keyword), dict):
            yield from (place.at(m) for m in named.values() if isinstance(m, dict | bool))


def patterns_of(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(pattern := schema.get("pattern"), str):
        yield pattern
    if isinstance(named := schema.get("patternProperties"), dict):
        yield from named


def states_of(pattern: str) -> int:
    """Return about how many states `pattern` has, with what is repeated counted as often."""
    groups = [0]
    last = 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token["times"]:
            times = int(token["most"] or token["times"])
            groups[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
        elif text == "(":
            groups.append(0)
        else:
            if text == ")" and len(groups) > 1:
                last = groups.pop()
            else:
                last = _CLASS_STATES if _UNICODE_CLASS.search(text) else 1
            groups[-1] += last
    return sum(groups)


def _loop(frames: list[_Frame], key: int) -> InvalidSchema:
    names = [
        str(frame.place.schema["$ref"])[:80]
        for frame in frames[[id(frame.place.schema) for frame in frames].index(key) :]
        if isinstance(frame.place.schema, dict) and "$ref" in frame.place.schema
    ]
    return InvalidSchema(
        f"{' → '.join(f'`$ref` {name!r}' for name in names[:5])} is a loop that looks at the same "
        "value again and again; recursion has to go through `properties` or `items`"
    )
