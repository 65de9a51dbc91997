"""The rules that a change can break, by Confluent's names, and what each means.

A change that breaks none is compatible: whatever is valid under the old schema, the writer's, is
valid under the new one, the reader's, but for what `docs/schemas.md` excepts.
"""

from typing import Final

_ADDED: Final = "the new schema limits what the old one does not"
_RAISED: Final = "the new schema asks for more than the old one"
_LOWERED: Final = "the new schema allows less than the old one"
_EXTRA: Final = "the old schema allows more beside what it names, and the new one does not"
_UNKNOWN: Final = "the old schema says nothing about this, so old data may hold anything here"
_DEPENDS: Final = "the new schema demands more together than the old one"

MEANINGS: Final[dict[str, str]] = {
    "SCHEMA_ADDED": "the new schema has a schema here, and the old one has none",
    "TYPE_CHANGED": "the type is another one",
    "TYPE_NARROWED": "numbers have to be integers, and had not to be",
    "MAX_LENGTH_ADDED": _ADDED,
    "MAX_LENGTH_DECREASED": _LOWERED,
    "MIN_LENGTH_ADDED": _ADDED,
    "MIN_LENGTH_INCREASED": _RAISED,
    "PATTERN_ADDED": _ADDED,
    "PATTERN_CHANGED": "the pattern is another one",
    "MAXIMUM_ADDED": _ADDED,
    "MAXIMUM_DECREASED": _LOWERED,
    "MINIMUM_ADDED": _ADDED,
    "MINIMUM_INCREASED": _RAISED,
    "EXCLUSIVE_MAXIMUM_ADDED": _ADDED,
    "EXCLUSIVE_MAXIMUM_DECREASED": _LOWERED,
    "EXCLUSIVE_MINIMUM_ADDED": _ADDED,
    "EXCLUSIVE_MINIMUM_INCREASED": _RAISED,
    "MULTIPLE_OF_ADDED": _ADDED,
    "MULTIPLE_OF_EXPANDED": "the new number is a multiple of the old one: fewer numbers fit",
    "MULTIPLE_OF_CHANGED": "numbers that fitted the old schema do not fit the new one",
    "REQUIRED_ATTRIBUTE_ADDED": "the property has to be there, has no default, and was optional",
    "MAX_PROPERTIES_ADDED": _ADDED,
    "MAX_PROPERTIES_DECREASED": _LOWERED,
    "MIN_PROPERTIES_ADDED": _ADDED,
    "MIN_PROPERTIES_INCREASED": _RAISED,
    "ADDITIONAL_PROPERTIES_REMOVED": _EXTRA,
    "ADDITIONAL_PROPERTIES_NARROWED": _EXTRA,
    "UNEVALUATED_PROPERTIES_REMOVED": _EXTRA,
    "UNEVALUATED_PROPERTIES_NARROWED": _EXTRA,
    "DEPENDENCY_ARRAY_ADDED": _DEPENDS,
    "DEPENDENCY_ARRAY_EXTENDED": _DEPENDS,
    "DEPENDENCY_ARRAY_CHANGED": _DEPENDS,
    "DEPENDENCY_SCHEMA_ADDED": _DEPENDS,
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _UNKNOWN,
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": _UNKNOWN,
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": _UNKNOWN,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": (
        "the property has to be there, has no default, and the old schema does not name it"
    ),
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the old schema has this property, and the new one allows none beside its own"
    ),
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "what the new schema allows beside its own properties does not allow this one"
    ),
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "what the old schema allows beside its own properties does not fit this one"
    ),
    "MAX_ITEMS_ADDED": _ADDED,
    "MAX_ITEMS_DECREASED": _LOWERED,
    "MIN_ITEMS_ADDED": _ADDED,
    "MIN_ITEMS_INCREASED": _RAISED,
    "MAX_CONTAINS_ADDED": _ADDED,
    "MAX_CONTAINS_DECREASED": _LOWERED,
    "MIN_CONTAINS_ADDED": _ADDED,
    "MIN_CONTAINS_INCREASED": _RAISED,
    "UNIQUE_ITEMS_ADDED": _ADDED,
    "ADDITIONAL_ITEMS_REMOVED": _EXTRA,
    "ADDITIONAL_ITEMS_NARROWED": _EXTRA,
    "UNEVALUATED_ITEMS_REMOVED": _EXTRA,
    "UNEVALUATED_ITEMS_NARROWED": _EXTRA,
    "ITEM_ADDED_TO_OPEN_CONTENT_MODEL": _UNKNOWN,
    "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL": (
        "the old schema has this item, and the new one allows none beside its own"
    ),
    "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "what the new schema allows after its own items does not allow this one"
    ),
    "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": (
        "what the old schema allows after its own items does not fit this one"
    ),
    "ENUM_ARRAY_NARROWED": "values that the old schema allows are missing in the new one",
    "ENUM_ARRAY_CHANGED": "values that the old schema allows are missing in the new one",
    "COMBINED_TYPE_CHANGED": "the schemas are combined in another way, which allows less",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": (
        "schemas that are combined in the old one have no counterpart in the new one that allows "
        "as much"
    ),
    "PRODUCT_TYPE_EXTENDED": "data has to fit more schemas at once than before",
    "SUM_TYPE_NARROWED": "data has fewer alternatives than before",
    "NOT_TYPE_EXTENDED": "the new schema forbids what the old one does not",
}
"""What a broken rule means; all names of incompatible changes."""
