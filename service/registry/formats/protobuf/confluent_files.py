"""The files that Confluent's clients import without registering them.

Names, numbers and types are Confluent's; without them, no schema that carries its metadata could
be registered.
"""

from typing import Final

_TARGETS: Final = {
    "FileOptions": "file_meta",
    "MessageOptions": "message_meta",
    "FieldOptions": "field_meta",
    "EnumOptions": "enum_meta",
    "EnumValueOptions": "enum_value_meta",
}

_META: Final = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
option java_package = "io.confluent.protobuf";
option java_outer_classname = "MetaProto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
  repeated Rule rules = 4;
}
message Rule {
  string name = 1;
  string doc = 2;
  string expr = 3;
  string sql = 4;
}
""" + "".join(
    f"extend google.protobuf.{options} {{ Meta {name} = 1088; }}\n"
    for options, name in _TARGETS.items()
)


def _of_type(outer: str, fields: str) -> str:
    return f"""syntax = "proto3";
package confluent.type;
option java_package = "io.confluent.protobuf.type";
option java_multiple_files = true;
option java_outer_classname = "{outer}Proto";
message {outer} {{ {fields} }}
"""


_DECIMAL: Final = _of_type("Decimal", "bytes value = 1; uint32 precision = 2; int32 scale = 3;")

CONFLUENT_FILES: Final = {
    "confluent/meta.proto": _META,
    "confluent/type/decimal.proto": _DECIMAL,
    # The Python client had it under this path, too.
    "confluent/types/decimal.proto": _DECIMAL,
    "confluent/type/variant.proto": _of_type("Variant", "bytes metadata = 1; bytes value = 2;"),
}
