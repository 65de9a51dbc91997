"""How few bytes a value of an Avro type may have, and how much memory it takes when it is decoded.

Both are worked out once for a schema. What an array, a map or a record inside itself holds is
counted when it is read; everything else has a known size, or one below that of its bytes.
"""

from typing import Final

from storage.schemas.avro.types import (
    AvroArray,
    AvroMap,
    AvroNamed,
    AvroPrimitive,
    AvroType,
    AvroUnion,
)

ITEM_BYTES: Final = 16
"""What a list or an object takes for each item, besides the item."""

_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_MEMORY: Final = {"null": 8, "boolean": 8, "string": 56, "bytes": 56}
_NUMBER: Final = 32
_OBJECT: Final = 200


class Sizes:
    """Of the types of one schema."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def bytes_min(self, tree: AvroType) -> int:
        """Return how many bytes each value has at least."""
        return self._of(tree)[0]

    def memory(self, tree: AvroType) -> int:
        """Return what a value takes, about; without items, which are counted as they come."""
        return self._of(tree)[1]

    def _of(self, tree: AvroType) -> tuple[int, int]:
        known = self._known.get(id(tree))
        if known is None:
            self._known[id(tree)] = (0, 0)  # Of a type inside itself, nothing is known.
            known = self._known[id(tree)] = self._measured(tree)
        return known

    def _measured(self, tree: AvroType) -> tuple[int, int]:
        if isinstance(tree, AvroPrimitive):
            return _BYTES.get(tree.kind, 1), _MEMORY.get(tree.kind, _NUMBER)
        if isinstance(tree, AvroArray | AvroMap):
            return 1, _OBJECT
        if isinstance(tree, AvroUnion):
            each = [self._of(branch) for branch in tree.branches] or [(0, 0)]
            tags = max((len(branch.kind) for branch in tree.branches), default=0)
            return 1 + min(e[0] for e in each), _OBJECT + tags + max(e[1] for e in each)
        assert isinstance(tree, AvroNamed)
        if tree.kind == "enum":
            return 1, 8 + max((len(symbol) for symbol in tree.symbols), default=0)
        if tree.kind == "fixed":
            return tree.size, 56
        fields = [(field.name, *self._of(field.type)) for field in tree.fields]
        memory = sum(len(name) + ITEM_BYTES + memory for name, _, memory in fields)
        return sum(size for _, size, _ in fields), _OBJECT + memory
