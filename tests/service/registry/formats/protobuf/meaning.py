"""What tests compare of schemas."""

from service.registry.formats.protobuf.form import ProtobufSchema
from service.registry.formats.protobuf.understanding import understood


def meaning(schema: ProtobufSchema) -> bytes:
    """Return bytes that are equal if all that two descriptors hold is equal."""
    return understood(schema.files).exact
