"""Where a JSON value does not fit its message, which the library does not always say."""

import re
from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from storage.schemas.refused import DoesNotFit

ERRORS: Final = (
    JsonError,
    EncodeError,
    DecodeError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
)
"""What the library raises for values that do not fit, in one place or another."""

ATTEMPTS_MAX: Final = 1_000
"""Maximum number of parts of a value that are tried to find the one that does not fit."""

_AROUND: Final = re.compile(r"^(?:Failed to parse \w+ field: )+")
_PLACE: Final = re.compile(r' at "?[^\s"]+"?$')


class Search:
    """Finds the part of one value that does not fit."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._attempts = ATTEMPTS_MAX

    def why(self, value: Any, kind: Any, error: Exception) -> DoesNotFit:
        """Return why a message does not fit; `error` is what the library said."""
        if not isinstance(value, dict) or is_known(kind):
            return DoesNotFit(plain(error))
        fields = {name: field for field in kind.fields for name in (field.json_name, field.name)}
        for name, item in value.items():
            field = fields.get(name)
            if field is None:
                if not name.startswith("["):
                    return _inside(name, DoesNotFit(f"{kind.full_name} has no such field"))
                continue
            if (part := self._error({name: item}, kind)) is not None:
                return _inside(name, self._in_field(item, name, field, part))
            if self._attempts <= 0:
                break
        return DoesNotFit(plain(error))

    def _in_field(self, item: Any, name: str, field: Any, error: Exception) -> DoesNotFit:
        kind, owner = field.message_type, field.containing_type
        if kind is not None and kind.GetOptions().map_entry:
            value = kind.fields_by_name["value"].message_type
            for key, each in item.items() if isinstance(item, dict) else ():
                if (part := self._error({name: {key: each}}, owner)) is not None:
                    found = DoesNotFit(plain(part)) if value is None else None
                    return _inside(str(key), found or self.why(each, value, part))
        elif field.is_repeated:
            for number, each in enumerate(item) if isinstance(item, list) else ():
                if (part := self._error({name: [each]}, owner)) is not None:
                    found = DoesNotFit(plain(part)) if kind is None else None
                    return _inside(str(number), found or self.why(each, kind, part))
        elif kind is not None:
            return self.why(item, kind, error)
        return DoesNotFit(plain(error))

    def _error(self, part: dict[str, Any], kind: Any) -> Exception | None:
        self._attempts -= 1
        if self._attempts < 0:
            return None
        try:
            ParseDict(part, GetMessageClass(kind)(), descriptor_pool=self._pool)
        except ERRORS as error:
            return error
        return None


def is_known(kind: Any) -> bool:
    """Whether a message is one of Google's, which may have a JSON form of their own."""
    return str(kind.full_name).startswith("google.protobuf.")


def plain(error: Exception) -> str:
    """Return what the library says, without the places, which it does not name as JSON does."""
    text = _AROUND.sub("", str(error).partition("\n")[0]).rstrip(".")
    return _PLACE.sub("", text)


def _inside(part: str, found: DoesNotFit) -> DoesNotFit:
    found.parts.append(part)
    return found
