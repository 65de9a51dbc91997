"""The fields of a message by number, and the oneofs that they are in."""

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto


class NumberedFields:
    """What a message says of each of its fields but for the types.

    The oneof that a descriptor makes of `optional` in proto3 is none here.
    """

    def __init__(self, message: DescriptorProto) -> None:
        self.fields: dict[int, FieldDescriptorProto] = {}
        self.oneof_of: dict[int, str] = {}
        self.oneofs: dict[str, list[int]] = {}
        for field in message.field:
            self.fields[field.number] = field
            if field.HasField("oneof_index") and not field.proto3_optional:
                name = message.oneof_decl[field.oneof_index].name
                self.oneof_of[field.number] = name
                self.oneofs.setdefault(name, []).append(field.number)

    def path(self, number: int, message: tuple[str, ...]) -> tuple[str, ...]:
        """Return the path of a field of the message that has the path `message`."""
        oneof = self.oneof_of.get(number)
        return (*message, str(number)) if oneof is None else (*message, oneof, str(number))
