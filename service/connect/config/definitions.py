"""Which keys a configuration can have.

Those of the frame, of its connector, and of converters, transforms and predicates that it names.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from service.connect.config.common import (
    ACCEPTED,
    ACCEPTED_BELOW,
    TOPIC_CREATION,
    UNSET_CONVERTER_SETTINGS,
    frame_keys,
)
from service.connect.config.keys import REQUIRED, Config, Importance, Key, KeyType, between
from service.connect.config.values import parse, value_of
from service.connect.connectors.api import Plugin, PluginKind
from service.connect.converters.choice import (
    CONVERTERS,
    SIMPLE_HEADERS,
    ConverterKind,
    converter_kind,
    is_header_converter,
)
from service.connect.transforms.choice import TRANSFORMS, predicate_kind, transform_kind
from service.connect.transforms.kinds import PredicateKind, TransformKind
from service.connect.transforms.predicates import PREDICATES

CONVERTER_KEYS: Final = ("key.converter", "value.converter", "header.converter")

ALIASES_MAX: Final = 100
"""Of transforms, of predicates, and of groups of topics."""

_CREATION: Final = re.compile(r"topic\.creation\.(?P<group>[^.]+)\.(?P<what>.+)")
_DEFAULT_GROUP: Final = "default"


@dataclass
class Definitions:
    """The keys of a configuration, in the order in which a form shows them."""

    keys: dict[str, Key] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    """Of keys whose values name what does not exist."""
    accepted: set[str] = field(default_factory=set)
    """Keys without definition that may be there."""
    allowed_below: list[str] = field(default_factory=list)
    """Prefixes of such keys."""

    def add(self, *keys: Key) -> None:
        self.keys.update({key.name: key for key in keys})

    def below(self, prefix: str, keys: Sequence[Key], group: str) -> None:
        """Add `keys` with `prefix` before their names."""
        self.add(*(replace(key, name=prefix + key.name, group=group) for key in keys))

    def refuse(self, name: str, why: str) -> None:
        self.problems.setdefault(name, []).append(why)

    def knows(self, name: str) -> bool:
        return (
            name in self.keys
            or name in self.accepted
            or any(name.startswith(prefix) for prefix in self.allowed_below)
        )


def definitions(plugin: Plugin, config: Config) -> Definitions:
    """Return the keys that `config` can have."""
    found = Definitions()
    found.add(*frame_keys(plugin.kind))
    found.add(*plugin.keys)
    found.accepted |= {*ACCEPTED, *plugin.ignored}
    found.allowed_below += [*ACCEPTED_BELOW, *plugin.prefixes]
    for name in CONVERTER_KEYS:
        _add_converter(found, name, config)
    _add_parts(found, "predicates", config)
    _add_parts(found, "transforms", config)
    if plugin.kind is PluginKind.SOURCE:
        _add_creation(found, config)
    return found


def _text(found: Definitions, name: str, config: Config) -> str:
    """Return what a key of text says, or its default."""
    default = found.keys[name].default
    return config.get(name, default or "").strip()


def _add_converter(found: Definitions, name: str, config: Config) -> None:
    class_name = _text(found, name, config)
    kind = converter_kind(class_name)
    found.accepted.add(f"{name}.plugin.version")
    if kind is not None:
        keys = kind.keys if name in config else [_of_unset(key) for key in kind.keys]
        found.below(f"{name}.", keys, f"{name}: {kind.short_name}")
        # Configurations often have it for every converter, and Kafka's others pass over it.
        found.accepted |= {f"{name}.schemas.enable", f"{name}.converter.type"}
    elif name == "header.converter" and is_header_converter(class_name):
        found.accepted |= {f"{name}.converter.type", f"{name}.schemas.enable"}
    else:
        known = [each.short_name for each in CONVERTERS]
        if name == "header.converter":
            known.insert(0, SIMPLE_HEADERS.rpartition(".")[2])
        names = ", ".join(known)
        found.refuse(name, f"there is no converter {class_name!r}; there are {names}")


def _of_unset(key: Key) -> Key:
    default = UNSET_CONVERTER_SETTINGS.get(key.name)
    return key if default is None else replace(key, default=parse(key, default))


def _aliases(found: Definitions, name: str, config: Config) -> list[str]:
    aliases: list[str] = parse(found.keys[name], config.get(name, ""))
    if len(set(aliases)) < len(aliases):
        found.refuse(name, "Duplicate alias provided.")
    if len(aliases) > ALIASES_MAX:
        found.refuse(name, f"has more than {ALIASES_MAX} names")
    return [each for each in dict.fromkeys(aliases) if each][:ALIASES_MAX]


def _add_parts(found: Definitions, what: str, config: Config) -> None:
    """Add the keys of the transforms, or of the predicates, that a configuration names."""
    is_transforms = what == "transforms"
    predicates = _aliases(found, "predicates", config) if is_transforms else []
    for alias in _aliases(found, what, config):
        kinds: Sequence[TransformKind | PredicateKind] = TRANSFORMS if is_transforms else PREDICATES
        prefix, group = f"{what}.{alias}.", f"{what.capitalize()}: {alias}"
        found.add(*_part_keys(prefix, group, is_transforms, predicates))
        found.accepted.add(f"{prefix}plugin.version")
        class_name = config.get(f"{prefix}type", "").strip()
        kind = transform_kind(class_name) if is_transforms else predicate_kind(class_name)
        if kind is not None:
            found.below(prefix, kind.keys, group)
        elif class_name:
            names = ", ".join(each.short_name for each in kinds)
            found.refuse(
                f"{prefix}type",
                f"there is no {what.removesuffix('s')} {class_name!r}; there are {names}",
            )


def _part_keys(
    prefix: str, group: str, is_transform: bool, predicates: Sequence[str]
) -> Iterator[Key]:
    yield Key(
        name=f"{prefix}type",
        type=KeyType.CLASS,
        importance=Importance.HIGH,
        about="The name of its class, Java's or the last part of it.",
        group=group,
        width="LONG",
    )
    if not is_transform:
        return

    def is_predicate(_: str, value: Any) -> str | None:
        if not value or value in predicates:
            return None
        return f"there is no predicate {value!r} in predicates"

    yield Key(
        name=f"{prefix}predicate",
        type=KeyType.STRING,
        default="",
        about="The name of a predicate: only records that match it are transformed.",
        group=group,
        choices=(),
        check=is_predicate,
    )
    yield Key(
        name=f"{prefix}negate",
        type=KeyType.BOOLEAN,
        default=False,
        about="Whether those records are transformed that do not match.",
        group=group,
    )


def _add_creation(found: Definitions, config: Config) -> None:
    """Add the keys that say how topics of a source are created."""
    groups = _aliases(found, "topic.creation.groups", config)
    has_default = any(name.startswith("topic.creation.default.") for name in config)
    for group in [*([_DEFAULT_GROUP] if has_default or groups else []), *groups]:
        is_default = group == _DEFAULT_GROUP
        found.add(*_creation_keys(f"topic.creation.{group}.", is_default))
        for name in config:
            match = _CREATION.fullmatch(name)
            if match is not None and match["group"] == group:
                # Any setting of a topic; those that topics do not have here are left out.
                found.accepted.add(name)


def _creation_keys(prefix: str, is_default: bool) -> Iterator[Key]:
    number: Mapping[str, Any] = {"type": KeyType.INT, "importance": Importance.LOW}
    yield Key(
        name=f"{prefix}replication.factor",
        default=REQUIRED if is_default else None,
        about="Zones that hold a new topic; -1: as many as usual here.",
        group=TOPIC_CREATION,
        check=between(-1, 32_767),
        **number,
    )
    yield Key(
        name=f"{prefix}partitions",
        default=REQUIRED if is_default else None,
        about="Partitions of a new topic; -1: as many as usual here.",
        group=TOPIC_CREATION,
        check=between(-1, 2**31 - 1),
        **number,
    )
    if not is_default:
        yield Key(
            name=f"{prefix}include",
            type=KeyType.LIST,
            default=(),
            about="Patterns of the names of its topics.",
            group=TOPIC_CREATION,
        )
        yield Key(
            name=f"{prefix}exclude",
            type=KeyType.LIST,
            default=(),
            about="Patterns of names that are not of this group.",
            group=TOPIC_CREATION,
        )


def class_names(key: Key) -> list[str]:
    """Return the classes that a key may name; empty: it names none."""
    kinds: Sequence[ConverterKind | TransformKind | PredicateKind] = ()
    if key.name in CONVERTER_KEYS:
        kinds = CONVERTERS
    elif key.type is KeyType.CLASS and key.name.endswith(".type"):
        kinds = TRANSFORMS if key.name.startswith("transforms.") else PREDICATES
    names = [each.class_name for each in kinds]
    return [SIMPLE_HEADERS, *names] if key.name == "header.converter" else names


def problems_of(found: Definitions, key: Key, config: Config) -> list[str]:
    """Return what is wrong with the value of `key`, in Kafka's words where it has some."""
    text = config.get(key.name)
    if text is None and key.default is REQUIRED:
        return [f'Missing required configuration "{key.name}" which has no default value.']
    problems = list(found.problems.get(key.name, ()))
    if text is not None:
        try:
            value_of(key, config)
        except ValueError as error:
            problems.append(str(error))
    return problems
