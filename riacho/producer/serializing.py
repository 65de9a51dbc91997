"""Keys and values by schemas, before they become records."""

from typing import TYPE_CHECKING, TypeAlias

from riacho.records import Headers, Payload, header_pairs

if TYPE_CHECKING:
    from riacho.schemas.serializers import Serialized, Serializer

Sendable: TypeAlias = tuple[Payload, Payload, Headers | None]
"""Key, value and headers."""


class Serializing:
    """The serializers of a producer: of keys, of values, or of both."""

    def __init__(self, key: "Serializer | None", value: "Serializer | None") -> None:
        self._key = key
        self._value = value

    def now(self, topic: str, key: Payload, value: Payload, headers: Headers | None) -> Sendable:
        """Return what is sent; waits if a subject is new to a serializer."""
        if self._key is not None:
            key, headers = _with(self._key(topic, key, is_key=True), headers)
        if self._value is not None:
            value, headers = _with(self._value(topic, value), headers)
        return key, value, headers

    async def soon(
        self, topic: str, key: Payload, value: Payload, headers: Headers | None
    ) -> Sendable:
        """Return what is sent, as `now` does, for programs with an event loop."""
        if self._key is not None:
            key, headers = _with(await self._key.serialize(topic, key, is_key=True), headers)
        if self._value is not None:
            value, headers = _with(await self._value.serialize(topic, value), headers)
        return key, value, headers


def _with(made: "Serialized", headers: Headers | None) -> tuple[Payload, Headers | None]:
    if not made.headers:
        return made.data, headers
    return made.data, (*header_pairs(headers), *made.headers)
