"""What a configuration may name as a transform or a predicate."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.connect.config.keys import Importance, Key, KeyType
from service.connect.config.values import Values
from service.connect.transforms.api import Predicate, Transform
from service.connect.transforms.sides import KEY, VALUE, Side

PACKAGE: Final = "org.apache.kafka.connect.transforms."


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformKind:
    class_name: str
    """Java's, in full: `org.apache.kafka.connect.transforms.MaskField$Value`."""
    about: str
    keys: Sequence[Key] = ()
    make: Callable[[Values], Transform]
    """Takes the values of `keys`. Raises `ConfigFault` with keys as they stand in `keys`."""

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredicateKind:
    class_name: str
    about: str
    keys: Sequence[Key] = ()
    make: Callable[[Values], Predicate]

    @property
    def short_name(self) -> str:
        return self.class_name.rpartition(".")[2]


def key_and_value(
    name: str, about: str, keys: Sequence[Key], make: Callable[[Side, Values], Transform]
) -> tuple[TransformKind, TransformKind]:
    """Return a transform of the keys of records, and the same of their values."""

    def of(side: Side) -> TransformKind:
        return TransformKind(
            class_name=f"{PACKAGE}{name}${side.name}",
            about=f"{about} Of the record's {side.name.lower()}.",
            keys=keys,
            make=lambda values: make(side, values),
        )

    return of(KEY), of(VALUE)


def not_empty(_: str, value: object) -> str | None:
    """Check of a key whose text or list must not be empty."""
    return None if value is None or value else "must not be empty"


def exactly(*choices: str) -> Callable[[str, Any], str | None]:
    """Return the check of a key with these values, written so."""

    def check(_: str, value: Any) -> str | None:
        return None if value in choices else f"must be one of {', '.join(choices)}"

    return check


WITH_DEFAULTS: Final = Key(
    name="replace.null.with.default",
    type=KeyType.BOOLEAN,
    default=True,
    about="Whether a field that is null gets the default of its schema, if there is one.",
)


def fields_key(about: str) -> Key:
    return Key(
        name="fields",
        type=KeyType.LIST,
        importance=Importance.HIGH,
        about=about,
        check=not_empty,
    )
