"""Which branch of a union a JSON value is meant for.

`{"type": value}` names it; a plain value gets the first branch that it fits. What looks like the
first but does not fit is taken as the second: a map may have the key "string".
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from storage.schemas.avro.types import AvroNamed, AvroPrimitive, AvroType, AvroUnion
from storage.schemas.refused import DoesNotFit

if TYPE_CHECKING:
    from storage.schemas.avro.writing import Out, Write

_OF_NUMBERS: Final = frozenset({"int", "long", "float", "double"})
_OF_STRINGS: Final = frozenset({"string", "bytes", "fixed", "enum"})

_Branch = tuple[bytes, "Write"]


def union_writer(tree: AvroUnion, writers: "Sequence[Write]") -> "Write":
    """Return what writes values of a union, given what writes each branch."""
    if len(tree.branches) == 2 and tree.branches[0].kind == "null":
        return _nullable(tree, writers)
    return _any_of(tree, writers)


def _nullable(tree: AvroUnion, writers: "Sequence[Write]") -> "Write":
    """Return the writer of the most common union, without what only others need."""
    other = tree.branches[1]
    if other.kind not in _OF_NUMBERS | _OF_STRINGS | {"boolean"}:
        return _any_of(tree, writers)
    write_other = writers[1]
    tags = _tags([other])

    def write(value: Any, out: "Out") -> None:
        if value is None:
            out.append(0)
            return
        out.append(2)
        if type(value) is dict and len(value) == 1:
            [(tag, inner)] = value.items()
            if tag in tags:
                _at(tag, write_other, inner, out)
                return
        write_other(value, out)

    return write


def _any_of(tree: AvroUnion, writers: "Sequence[Write]") -> "Write":
    branches = [(_number(index), write) for index, write in enumerate(writers)]
    tags = {tag: branches[index] for tag, index in _tags(tree.branches).items()}
    fitting = {
        kind: [each for each, branch in zip(branches, tree.branches, strict=True) if test(branch)]
        for kind, test in _TESTS.items()
    }
    names = ", ".join(_name(branch) for branch in tree.branches)
    no_fit = f"it fits no type of the union: {names:.200}"

    def write(value: Any, out: "Out") -> None:
        tagged: DoesNotFit | None = None
        if type(value) is dict and len(value) == 1:
            [(tag, inner)] = value.items()
            if tag in tags:
                tagged = _tried(tags[tag], inner, out, tag)
                if tagged is None:
                    return
        candidates = fitting.get(type(value), branches)
        if len(candidates) == 1 and tagged is None:
            [(number, write_branch)] = candidates
            out += number
            write_branch(value, out)
        elif all(_tried(branch, value, out) is not None for branch in candidates):
            raise tagged or DoesNotFit(no_fit)

    return write


def _tried(branch: _Branch, value: Any, out: "Out", tag: str = "") -> DoesNotFit | None:
    """Write a value as one branch of a union; return why not, if it does not fit that."""
    out.attempts -= 1
    if out.attempts < 0:
        raise _TooManyAttempts('name the types in unions, as {"type": value}: too many may fit')
    start, levels = len(out), out.levels
    number, write = branch
    try:
        out += number
        write(value, out)
    except _TooManyAttempts:
        raise
    except DoesNotFit as error:
        del out[start:]
        out.levels = levels
        if tag:
            error.parts.append(tag)
        return error
    return None


class _TooManyAttempts(DoesNotFit):
    """Ends all attempts: there is no time for others."""


def _at(tag: str, write: "Write", value: Any, out: "Out") -> None:
    try:
        write(value, out)
    except DoesNotFit as error:
        error.parts.append(tag)
        raise


def _tags(branches: "Sequence[AvroType]") -> dict[str, int]:
    """Return by which names values say what they are: full ones, and short ones of one branch."""
    tags: dict[str, int] = {}
    for index, branch in enumerate(branches):
        if isinstance(branch, AvroNamed):
            tags.setdefault(branch.name, index)
    for index, branch in enumerate(branches):
        if branch.kind != "null":
            tags[_name(branch)] = index
    return tags


def _name(branch: AvroType) -> str:
    return branch.full_name if isinstance(branch, AvroNamed) else branch.kind


def _takes_strings(branch: AvroType) -> bool:
    return branch.kind in _OF_STRINGS or _is_number(branch)


def _takes_numbers(branch: AvroType) -> bool:
    is_decimal = branch.kind in ("bytes", "fixed") and _logical(branch) == "decimal"
    return branch.kind in _OF_NUMBERS or is_decimal


def _is_number(branch: AvroType) -> bool:
    """Whether strings may be numbers: NaN and infinities, or dates and times."""
    return branch.kind in ("float", "double") or (
        branch.kind in ("int", "long") and _logical(branch) is not None
    )


def _logical(branch: AvroType) -> Any:
    found = branch.props if isinstance(branch, AvroPrimitive | AvroNamed) else {}
    return found.get("logicalType")


_TESTS: Final[dict[type, Callable[[AvroType], bool]]] = {
    type(None): lambda branch: branch.kind == "null",
    bool: lambda branch: branch.kind == "boolean",
    int: _takes_numbers,
    float: _takes_numbers,
    str: _takes_strings,
    list: lambda branch: branch.kind == "array",
    dict: lambda branch: branch.kind in ("record", "map"),
}
"""Which branches a value of JSON can be meant for, by its type in Python."""


def _number(index: int) -> bytes:
    data = bytearray()
    left = index << 1
    while left > 127:
        data.append(left & 127 | 128)
        left >>= 7
    data.append(left)
    return bytes(data)
