"""Data of a Protobuf schema: the indexes of a message of its file, then the message."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from storage.schemas.codec import ROOM_BYTES, TOO_DEEP, TOO_LARGE, Decoded, Encoded, room_for
from storage.schemas.framing import pack_indexes, unpack_indexes
from storage.schemas.protobuf.misfits import ERRORS, Search, is_known, plain
from storage.schemas.protobuf.sizes import ANY, ANYS_MAX, MessageSizes
from storage.schemas.refused import DoesNotFit, RefusedValue
from storage.schemas.source import InvalidSchema, SchemaSource


class _MessageKind:
    """One message of a schema."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.make: Callable[[], Message] = GetMessageClass(descriptor)
        self.sizes = MessageSizes(descriptor)


class ProtobufCodec:
    """A `Codec` of Protobuf; it encodes the message at `indexes`, the first one unless said."""

    def __init__(self, source: SchemaSource, indexes: tuple[int, ...] = (0,)) -> None:
        files = FileDescriptorSet.FromString(source.descriptors).file
        if not files:
            raise InvalidSchema("a Protobuf schema needs its descriptors")
        self._pool = DescriptorPool()
        for file in files:
            self._pool.Add(file)
        self._file = self._pool.FindFileByName(files[-1].name)
        self._messages = [each.name for each in files[-1].message_type]
        self._lock = Lock()
        self._kinds: dict[tuple[int, ...], _MessageKind] = {}
        self._indexes = indexes

    def encode_many(self, values: Sequence[Any], room_bytes: int = ROOM_BYTES) -> Encoded:
        bodies: list[bytes | None] = []
        refused: list[RefusedValue] = []
        prefix = pack_indexes(self._indexes)
        left = room_bytes
        for index, value in enumerate(values):
            body = None
            if value is not None:
                try:
                    body = prefix + self._encoded(value)
                    left -= len(body)
                    if left < 0:
                        body = None
                        raise DoesNotFit("the values are too large together")
                except DoesNotFit as error:
                    refused.append(error.at(index))
                except RecursionError:
                    refused.append(RefusedValue(index, "", TOO_DEEP))
            bodies.append(body)
        return Encoded(bodies, refused)

    def decode_many(self, bodies: Sequence[bytes | None]) -> Decoded:
        values: list[Any] = []
        refused: list[RefusedValue] = []
        room = room_for(bodies)
        for index, body in enumerate(bodies):
            value = None
            if body is not None:
                try:
                    message, kind = self._parsed(body)
                    room -= kind.sizes.check(message, len(body), room)
                    value = self._shown(message)
                except DoesNotFit as error:
                    refused.append(error.at(index))
            values.append(value)
        return Decoded(values, refused)

    def message_of(self, body: bytes) -> Message:
        """Return the message of a body, or raise `DoesNotFit`."""
        message, kind = self._parsed(body)
        kind.sizes.check(message, len(body), room_for([body]))
        return message

    def validate_many(self, bodies: Sequence[bytes | None]) -> list[RefusedValue]:
        refused: list[RefusedValue] = []
        for index, body in enumerate(bodies):
            try:
                if body is not None and not self._parsed(body)[0].IsInitialized():
                    raise DoesNotFit("a required field is missing")
            except DoesNotFit as error:
                refused.append(error.at(index))
        return refused

    def _encoded(self, value: Any) -> bytes:
        kind = self._kind(self._indexes)
        message = kind.make()
        if not isinstance(value, dict) and not is_known(message.DESCRIPTOR):
            raise DoesNotFit("a message is an object")
        try:
            ParseDict(value, message, descriptor_pool=self._pool)
            return message.SerializeToString()
        except ERRORS as error:
            raise Search(self._pool).why(value, message.DESCRIPTOR, error) from None

    def _parsed(self, body: bytes) -> tuple[Message, _MessageKind]:
        try:
            indexes, at = unpack_indexes(body)
        except ValueError as error:
            raise DoesNotFit(str(error)) from None
        kind = self._kind(indexes)
        if kind.sizes.has_any and body.count(ANY.encode()) > ANYS_MAX:
            raise DoesNotFit(TOO_LARGE)
        message = kind.make()
        try:
            message.ParseFromString(body[at:])
        except ERRORS:
            raise DoesNotFit(
                "it is no such message: cut off, followed by more, or nested too deep"
            ) from None
        return message, kind

    def _shown(self, message: Message) -> Any:
        try:
            return MessageToDict(
                message, always_print_fields_with_no_presence=True, descriptor_pool=self._pool
            )
        except RecursionError:
            raise DoesNotFit(TOO_DEEP) from None
        except ERRORS as error:
            raise DoesNotFit(plain(error)) from None

    def _kind(self, indexes: tuple[int, ...]) -> _MessageKind:
        kind = self._kinds.get(indexes)
        if kind is None:
            descriptor = self._descriptor(indexes)
            with self._lock:
                kind = self._kinds.setdefault(indexes, _MessageKind(descriptor))
        return kind

    def _descriptor(self, indexes: tuple[int, ...]) -> Descriptor:
        """Return the message at these indexes, the outermost first, or raise `DoesNotFit`."""
        if indexes and indexes[0] < len(self._messages):
            found: Descriptor = self._file.message_types_by_name[self._messages[indexes[0]]]
            for index in indexes[1:]:
                if index >= len(found.nested_types):
                    break
                found = found.nested_types[index]
            else:
                return found
        raise DoesNotFit(f"the schema has no message {list(indexes)}")
