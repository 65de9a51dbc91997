"""Names that Confluent's `ProtobufData` gives to types, options and parameters."""

from typing import Final

NAMESPACE: Final = "io.confluent.connect.protobuf"
DEFAULT: Final = "ConnectDefault"
ENUM: Final = f"{NAMESPACE}.Enum"
UNION: Final = f"{NAMESPACE}.Union."
TAG: Final = f"{NAMESPACE}.Tag"
"""A parameter: the number of a field."""

TYPE: Final = f"{NAMESPACE}.Type"
"""A parameter: which of Protobuf's types of numbers a field has, if not the usual one."""

ENTRY: Final = "Entry"
DECIMAL_TYPE: Final = "confluent.type.Decimal"
DATE_TYPE: Final = "google.type.Date"
TIME_TYPE: Final = "google.type.TimeOfDay"
TIMESTAMP_TYPE: Final = "google.protobuf.Timestamp"
META: Final = "confluent/meta.proto"
META_TYPE: Final = "confluent.Meta"
META_NUMBER: Final = 1088
"""Of the option `confluent.field_meta`."""

FILES: Final = {
    DECIMAL_TYPE: "confluent/type/decimal.proto",
    DATE_TYPE: "google/type/date.proto",
    TIME_TYPE: "google/type/timeofday.proto",
    TIMESTAMP_TYPE: "google/protobuf/timestamp.proto",
}
PRECISION: Final = "connect.decimal.precision"
CONNECT_TYPE: Final = "connect.type"


def short_name(full_name: str) -> str:
    return full_name.rpartition(".")[2]
