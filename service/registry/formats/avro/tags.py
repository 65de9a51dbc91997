"""Tags inside an Avro schema: `confluent:tags` of its records and their fields."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from storage.schemas.source import InvalidSchema

TAGS: Final = "confluent:tags"


RECORD: Final = "sr_record"
FIELD: Final = "sr_field"


def tags_of(text: str) -> list[tuple[str, str, list[str]]]:
    """Return what has tags in a valid schema: its name, whether it is a record, and the tags."""
    found = []
    for path, kind, place in _places(json.loads(text), ""):
        tags = place.get(TAGS)
        if isinstance(tags, list) and tags:
            found.append((path, kind, [str(tag) for tag in tags]))
    return found


def with_tags(
    text: str, added: Mapping[str, Iterable[str]], removed: Mapping[str, Iterable[str]]
) -> str:
    """Return a valid schema with other tags, or raise `InvalidSchema` if it lacks what has them.

    A record is named by its full name, a field by that and its own: `shop.Order.amount`.
    """
    tree = json.loads(text)
    places = {path: place for path, _, place in _places(tree, "")}
    for path in dict.fromkeys((*added, *removed)):
        place = places.get(path.removeprefix("."))
        if place is None:
            raise InvalidSchema(f"it has no record or field {path!r:.200}")
        found = place.get(TAGS)
        tags = dict.fromkeys([*(found if isinstance(found, list) else []), *added.get(path, ())])
        gone = set(removed.get(path, ()))
        place[TAGS] = [tag for tag in tags if tag not in gone]
        if not place[TAGS]:
            del place[TAGS]
    return json.dumps(tree, ensure_ascii=False)


def _places(tree: Any, space: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the records and fields of a schema, with their names and kinds."""
    if isinstance(tree, list):
        for branch in tree:
            yield from _places(branch, space)
    if not isinstance(tree, dict):
        return
    if tree.get("type") not in ("record", "error"):
        for part in ("type", "items", "values"):
            yield from _places(tree.get(part), space)
        return
    name = tree["name"]
    if "." not in name and (space := tree.get("namespace", space)):
        name = f"{space}.{name}"
    yield name, RECORD, tree
    for field in tree["fields"]:
        yield f"{name}.{field['name']}", FIELD, field
        yield from _places(field["type"], name.rpartition(".")[0])
