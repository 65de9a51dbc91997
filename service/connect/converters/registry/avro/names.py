"""Names that Confluent's `AvroData` gives: of schemas, of attributes, of parameters."""

from typing import Final

NAMESPACE: Final = "io.confluent.connect.avro"
DEFAULT: Final = "ConnectDefault"
MAP_ENTRY: Final = "MapEntry"
UNION: Final = f"{NAMESPACE}.Union"
ENUM: Final = f"{NAMESPACE}.Enum"
RECORD_DOC: Final = f"{NAMESPACE}.record.doc"
ENUM_DOC: Final = f"{NAMESPACE}.enum.doc."
ENUM_DEFAULT: Final = f"{NAMESPACE}.enum.default."
FIELD_DOC: Final = f"{NAMESPACE}.field.doc."
FIELD_DEFAULT: Final = f"{NAMESPACE}.field.default"
"""A parameter that says that a default was the field's, and not Connect's."""

FIXED_SIZE: Final = "connect.fixed.size"
PRECISION: Final = "connect.decimal.precision"
PRECISION_DEFAULT: Final = 64
INTERNAL_TYPE: Final = "connect.internal.type"


def split_name(full_name: str) -> tuple[str, str]:
    """Return the namespace and the rest."""
    namespace, _, name = full_name.rpartition(".")
    return namespace, name
