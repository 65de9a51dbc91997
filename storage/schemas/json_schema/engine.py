"""The library that checks data: compiled schemas, and its engine for patterns.

Patterns are those of ECMA 262. Most run in linear time; those that look around or back may try
`BACKTRACKS_MAX` ways, and what takes more does not match.
"""

from functools import cache, lru_cache
from typing import Final

import jsonschema_rs
from jsonschema_rs import FancyRegexOptions, Validator

from storage.schemas.json_schema.documents import BASE, Documents
from storage.schemas.json_schema.drafts import Dialect
from storage.schemas.json_schema.reading import write
from storage.schemas.source import InvalidSchema

BACKTRACKS_MAX: Final = 10_000
_PATTERN_BYTES_MAX: Final = 1024 * 1024
_MESSAGE_LENGTH_MAX: Final = 300
_DRAFTS: Final[dict[Dialect, tuple[type[Validator], int]]] = {
    Dialect.DRAFT_4: (jsonschema_rs.Draft4Validator, jsonschema_rs.Draft4),
    Dialect.DRAFT_6: (jsonschema_rs.Draft6Validator, jsonschema_rs.Draft6),
    Dialect.DRAFT_7: (jsonschema_rs.Draft7Validator, jsonschema_rs.Draft7),
    Dialect.DRAFT_2019_09: (jsonschema_rs.Draft201909Validator, jsonschema_rs.Draft201909),
    Dialect.DRAFT_2020_12: (jsonschema_rs.Draft202012Validator, jsonschema_rs.Draft202012),
}


def compiled(documents: Documents) -> Validator:
    """Return what checks data against a schema; raise `InvalidSchema` if it is not a schema."""
    root = documents.root
    schema = root.schema
    if isinstance(schema, dict):
        # What it names, we have understood; the library refuses drafts that it does not know.
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    kind, number = _DRAFTS[root.draft]
    try:
        return kind(
            write(schema),
            base_uri=BASE,
            registry=jsonschema_rs.Registry(
                [(uri, place.schema) for uri, place in documents.references.items()], draft=number
            ),
            pattern_options=_pattern_options(),
            offline=True,
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        path = "/".join(map(str, getattr(error, "instance_path", ())))
        raise InvalidSchema(
            f"not a schema of draft {root.draft.label}: {_brief(error.message)} (at #/{path})"
        ) from None
    except ValueError as error:
        raise InvalidSchema(f"not a schema: {_brief(str(error))}") from None


@lru_cache(maxsize=256)
def finds(pattern: str, text: str) -> bool:
    """Whether `pattern` occurs in `text`."""
    return _pattern(pattern).is_valid(text)


@lru_cache(maxsize=64)
def _pattern(pattern: str) -> Validator:
    return jsonschema_rs.Draft7Validator(
        {"pattern": pattern}, pattern_options=_pattern_options(), offline=True
    )


@cache
def _pattern_options() -> FancyRegexOptions:
    return FancyRegexOptions(
        backtrack_limit=BACKTRACKS_MAX,
        size_limit=_PATTERN_BYTES_MAX,
        dfa_size_limit=_PATTERN_BYTES_MAX,
    )


def _brief(message: str) -> str:
    if len(message) <= _MESSAGE_LENGTH_MAX:
        return message
    return f"{message[:_MESSAGE_LENGTH_MAX]}…"
