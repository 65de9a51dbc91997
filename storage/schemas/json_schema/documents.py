"""A schema with the schemas that it refers to, and where each `$ref` leads.

A `$ref` is looked up among the given texts only, under the name by which the schema refers to
each, and under their own `$id`s and anchors. Nothing is ever fetched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urljoin

from storage.schemas.json_schema.drafts import (
    REFERRING,
    Dialect,
    draft_of,
    is_meta_schema,
    schemas_within,
)
from storage.schemas.json_schema.reading import Value, read
from storage.schemas.source import InvalidSchema, Named

BASE: Final = "json-schema:///"
"""Where a schema without `$id` stands, as the library that validates data calls it."""


@dataclass(frozen=True, slots=True, eq=False)
class SchemaPlace:
    """A schema where it stands: `base` is the URI against which its `$ref`s are resolved."""

    schema: dict[str, Any] | bool
    base: str
    draft: Dialect

    def at(self, schema: Any) -> "SchemaPlace":
        """Return `schema`, which stands in this one."""
        return place_of(schema, self.base, self.draft)


def place_of(schema: Any, base: str, draft: Dialect) -> SchemaPlace:
    """Return `schema`, which stands where URIs are relative to `base`."""
    identifier = own_id(schema, draft)
    if identifier is None or identifier.startswith("#"):
        return SchemaPlace(schema, base, draft)
    return SchemaPlace(schema, split(join(base, identifier))[0], draft)


def own_id(schema: Value, draft: Dialect) -> str | None:
    if not isinstance(schema, dict) or ("$ref" in schema and draft.ref_stands_alone):
        return None
    identifier = schema.get("id" if draft is Dialect.DRAFT_4 else "$id")
    return identifier if isinstance(identifier, str) else None


def join(base: str, reference: str) -> str:
    """Return `reference` as it stands relative to `base`, whatever the scheme of that is."""
    if reference.startswith("#") or not reference:
        return split(base)[0] + reference
    scheme, separator, rest = base.partition("://")
    # `urljoin` leaves schemes alone that it does not know.
    joined = urljoin(f"http://{rest}", reference) if separator else reference
    if separator and joined.startswith("http://") and not reference.startswith("http://"):
        return f"{scheme}://{joined.removeprefix('http://')}"
    return joined


def split(uri: str) -> tuple[str, str]:
    """Return `uri` without its fragment, and the fragment."""
    uri, _, fragment = uri.partition("#")
    return uri, fragment


class Documents:
    """A schema and everything that it may refer to."""

    def __init__(self, schema: Value, references: Sequence[Named]) -> None:
        """Raise `InvalidSchema` if a `$ref` leads nowhere."""
        draft = draft_of(schema)
        self.root: Final = place_of(schema, BASE, draft)
        self.references: dict[str, SchemaPlace] = {}
        """What other schemas are called, by full URI."""
        self._resources: dict[str, SchemaPlace] = {}
        self._anchors: dict[tuple[str, str], SchemaPlace] = {}
        self._referenced: dict[str, SchemaPlace] = {}
        for reference in references:
            value = read(reference.text)
            self._referenced[reference.name] = place_of(value, BASE, draft_of(value, draft))
        self.places: Final = [
            found
            for document in (*self._referenced.values(), self.root)
            for found in places_within(document)
        ]
        """Every schema here, references first, with its path in its document."""
        for _, found in self.places:
            self._index(found)
        self._name_references()
        self._check_references()

    def resolve(self, reference: str, place: SchemaPlace) -> SchemaPlace:
        """Return the schema to which `reference`, which stands in `place`, leads."""
        uri, fragment = split(join(place.base, reference))
        resource = self._resources.get(uri) or self._referenced.get(split(reference)[0])
        if resource is None:
            if is_meta_schema(uri):
                return SchemaPlace(True, uri, place.draft)
            raise InvalidSchema(
                f"`$ref` {reference!r} is not in this schema, and not one of its references: add "
                "a reference with this name; nothing is fetched"
            )
        fragment = unquote(fragment)
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            if (anchored := self._anchors.get((uri, fragment))) is None:
                raise InvalidSchema(f"`$ref` {reference!r} leads nowhere: no such `$anchor`")
            return anchored
        return _follow(resource, fragment, reference)

    def targets(self, place: SchemaPlace) -> Iterator[SchemaPlace]:
        """Yield what the schema in `place` refers to."""
        if isinstance(place.schema, dict):
            for keyword in REFERRING:
                if isinstance(reference := place.schema.get(keyword), str):
                    yield self.resolve(reference, place)

    def _index(self, place: SchemaPlace) -> None:
        schema = place.schema
        identifier = own_id(schema, place.draft)
        if identifier is not None and not identifier.startswith("#"):
            self._resources.setdefault(place.base, place)
        if isinstance(schema, dict):
            named = [schema.get("$anchor"), schema.get("$dynamicAnchor")]
            if identifier is not None and identifier.startswith("#"):
                named.append(identifier[1:])
            for name in named:
                if isinstance(name, str):
                    self._anchors.setdefault((place.base, name), place)

    def _name_references(self) -> None:
        """Let each reference be found by its name, relative to whichever document names it."""
        self._resources[self.root.base] = self.root
        bases = {self.root.base, BASE, *(place.base for place in self._referenced.values())}
        for name, place in self._referenced.items():
            for base in bases:
                self.references.setdefault(split(join(base, name))[0], place)
        for uri, place in self.references.items():
            self._resources.setdefault(uri, place)

    def _check_references(self) -> None:
        for path, place in self.places:
            try:
                for _ in self.targets(place):
                    pass
            except InvalidSchema as error:
                raise InvalidSchema(f"{error} (at {path})") from None


def places_within(place: SchemaPlace) -> Iterator[tuple[str, SchemaPlace]]:
    """Yield `place` and all schemas that stand in it, each with its path."""
    waiting = [("#", place)]
    while waiting:
        path, here = waiting.pop()
        yield path, here
        if isinstance(here.schema, dict):
            waiting += ((f"{path}/{name}", here.at(s)) for name, s in schemas_within(here.schema))


def _follow(place: SchemaPlace, pointer: str, reference: str) -> SchemaPlace:
    value: Any = place.schema
    base = place.base
    for part in pointer[1:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name[:9]) < len(value):
            value = value[int(name[:9])]
        else:
            raise InvalidSchema(f"`$ref` {reference!r} leads nowhere: there is no {part!r}")
        base = place_of(value, base, place.draft).base
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"`$ref` {reference!r} leads to something that is not a schema")
    return SchemaPlace(value, base, place.draft)
