"""How much memory the JSON of a Protobuf message takes, about, before it is made.

A message of two bytes shows all fields that have a default, and a schema may give it thousands.
"""

from collections.abc import Iterable
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from storage.schemas.codec import TOO_LARGE
from storage.schemas.refused import DoesNotFit

_OBJECT: Final = 200
_VALUE: Final = 64

ANY: Final = "google.protobuf.Any"
ANYS_MAX: Final = 16
"""Maximum number of messages of any type inside those: each is a copy of all that is in it."""


class MessageSizes:
    """Of the messages of one schema."""

    def __init__(self, root: Descriptor) -> None:
        self._own: dict[str, int] = {}
        waiting = [root]
        while waiting:
            kind = waiting.pop()
            if kind.full_name in self._own:
                continue
            self._own[kind.full_name] = _OBJECT + sum(
                len(field.json_name) + _VALUE for field in kind.fields if not field.has_presence
            )
            waiting += [field.message_type for field in kind.fields if field.message_type]
        self._most = max(self._own.values())
        self.has_any = ANY in self._own

    def check(self, message: Message, size_bytes: int, room: int) -> int:
        """Return what the JSON takes, at most `room`, or raise `DoesNotFit`."""
        # Each message but the first takes two bytes at least, and each value one.
        most = self._most + size_bytes * (self._most // 2 + _VALUE)
        if most <= room:
            return most
        return self._count(message, room)

    def _count(self, message: Message, room: int) -> int:
        left = room - self._of(message.DESCRIPTOR)
        waiting: list[Message] = [message]
        while waiting:
            for field, value in waiting.pop().ListFields():
                left -= self._of_field(field, value)
                if left < 0:
                    raise DoesNotFit(TOO_LARGE)
                waiting += _messages_in(field, value)
        return room - left

    def _of(self, kind: Any) -> int:
        return self._own.get(kind.full_name, self._most)

    def _of_field(self, field: FieldDescriptor, value: Any) -> int:
        own = len(field.json_name) + _VALUE
        kind = field.message_type
        each = _VALUE + (0 if kind is None else self._of(kind))
        if field.is_repeated:
            return own + len(value) * each
        return own + each + (len(value) if isinstance(value, str | bytes) else 0)


def _messages_in(field: FieldDescriptor, value: Any) -> Iterable[Message]:
    """Return the messages that the value of a field consists of."""
    kind = field.message_type
    if kind is None:
        return ()
    if not field.is_repeated:
        return (value,)
    if not kind.GetOptions().map_entry:
        return list(value)
    has_messages = kind.fields_by_name["value"].message_type is not None
    return list(value.values()) if has_messages else ()
