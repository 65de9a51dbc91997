"""Names that Confluent's `JsonSchemaData` gives to attributes and parameters."""

from typing import Final

NAMESPACE: Final = "io.confluent.connect.json"
ENUM: Final = f"{NAMESPACE}.Enum"
ONE_OF: Final = f"{NAMESPACE}.OneOf"
NULL_SYMBOL: Final = "<NULL>"
TYPE: Final = "connect.type"
INDEX: Final = "connect.index"
VERSION: Final = "connect.version"
PARAMETERS: Final = "connect.parameters"
