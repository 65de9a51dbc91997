"""Which transform or predicate a class name means, and the chain that a configuration describes.

    transforms                     mask,route          in this order
    transforms.mask.type           org.apache.kafka.connect.transforms.MaskField$Value
    transforms.mask.fields         …                   what the transform has as keys
    transforms.mask.predicate      isOrder             only records for which this holds …
    transforms.mask.negate         true                … or does not
    predicates                     isOrder
    predicates.isOrder.type        org.apache.kafka.connect.transforms.predicates.TopicNameMatches
    predicates.isOrder.pattern     …

Names are Java's, ours are the same without their package: `MaskField$Value`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from service.connect.config.keys import Config, Key, KeyType
from service.connect.config.values import Values, parse
from service.connect.data.errors import ConfigFault, ConnectFault
from service.connect.data.records import ConnectRecord
from service.connect.transforms.api import Predicate, Transform
from service.connect.transforms.casting.cast import CAST
from service.connect.transforms.casting.mask import MASK_FIELD
from service.connect.transforms.fields import FIELD_TRANSFORMS
from service.connect.transforms.flatten import FLATTEN
from service.connect.transforms.headers import HEADER_TRANSFORMS
from service.connect.transforms.insert_field import INSERT_FIELD
from service.connect.transforms.kinds import PredicateKind, TransformKind
from service.connect.transforms.metadata import SET_SCHEMA_METADATA
from service.connect.transforms.predicates import PREDICATES
from service.connect.transforms.routing import ROUTING_TRANSFORMS
from service.connect.transforms.times.converter import TIMESTAMP_CONVERTER
from service.connect.transforms.times.router import TIMESTAMP_ROUTER

T = TypeVar("T")

TRANSFORMS: Final[Sequence[TransformKind]] = tuple(
    sorted(
        (
            *CAST,
            *FIELD_TRANSFORMS,
            *FLATTEN,
            *HEADER_TRANSFORMS,
            *INSERT_FIELD,
            *MASK_FIELD,
            *ROUTING_TRANSFORMS,
            *SET_SCHEMA_METADATA,
            *TIMESTAMP_CONVERTER,
            TIMESTAMP_ROUTER,
        ),
        key=lambda kind: kind.class_name,
    )
)

_TRANSFORMS: Final[Mapping[str, TransformKind]] = {
    name: kind for kind in TRANSFORMS for name in (kind.class_name, kind.short_name)
}
_PREDICATES: Final[Mapping[str, PredicateKind]] = {
    name: kind for kind in PREDICATES for name in (kind.class_name, kind.short_name)
}

_LIST: Final = Key(name="transforms", type=KeyType.LIST, default=())
_NEGATE: Final = Key(name="negate", type=KeyType.BOOLEAN, default=False)


def transform_kind(class_name: str) -> TransformKind | None:
    """Return what a class name means; None: there is no such transform."""
    return _TRANSFORMS.get(class_name.strip())


def predicate_kind(class_name: str) -> PredicateKind | None:
    """Return what a class name means; None: there is no such predicate."""
    return _PREDICATES.get(class_name.strip())


def transforms_of(config: Config) -> Transform:
    """Return the chain that `transforms` names as one transform; without any, records pass.

    Raises `ConfigFault` that names every key that is missing or wrong.
    """
    problems: dict[str, str] = {}
    predicates = {
        alias: made
        for alias, made in _each(config, "predicates", predicate_kind, problems)
        if made is not None
    }
    stages: list[Transform] = []
    for alias, made in _each(config, "transforms", transform_kind, problems):
        chosen = _chosen(config, alias, predicates, problems)
        if made is not None:
            stages.append(made if chosen is None else _if(chosen[0], chosen[1], made))
    if problems:
        raise ConfigFault(problems)
    return _chain(stages)


def _aliases(config: Config, part: str, problems: dict[str, str]) -> list[str]:
    aliases: list[str] = parse(_LIST, config.get(part, ""))
    if len(set(aliases)) != len(aliases):
        problems[part] = "Duplicate alias provided."
    elif not all(aliases):
        problems[part] = "has a name that is empty"
    return [alias for alias in dict.fromkeys(aliases) if alias]


def _each(
    config: Config, part: str, kind_of: Any, problems: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield what is configured below `part`; None for what is wrong, which is in `problems`."""
    for alias in _aliases(config, part, problems):
        prefix = f"{part}.{alias}."
        said = config.get(prefix + "type")
        kind = None if said is None else kind_of(said)
        if kind is None:
            problems[prefix + "type"] = _no_kind(part, said)
            yield alias, None
            continue
        settings = {
            name[len(prefix) :]: text for name, text in config.items() if name.startswith(prefix)
        }
        try:
            yield alias, _named(kind.class_name, kind.make(Values(kind.keys, settings)))
        except ConfigFault as fault:
            problems.update({prefix + name: text for name, text in fault.problems.items()})
            yield alias, None


def _named(class_name: str, made: Callable[[ConnectRecord], T]) -> Callable[[ConnectRecord], T]:
    """Let errors say which transform or predicate has raised them."""

    def named(record: ConnectRecord) -> T:
        try:
            return made(record)
        except ConnectFault as fault:
            fault.raised_by = fault.raised_by or class_name
            raise

    return named


def _no_kind(part: str, said: str | None) -> str:
    if said is None:
        return "is required and has no default"
    kinds: Sequence[TransformKind | PredicateKind] = (
        TRANSFORMS if part == "transforms" else PREDICATES
    )
    names = ", ".join(kind.short_name for kind in kinds)
    return f"there is no {part[:-1]} {said!r}; there are {names}"


def _chosen(
    config: Config, alias: str, predicates: Mapping[str, Predicate], problems: dict[str, str]
) -> tuple[Predicate, bool] | None:
    """Return the predicate of a transform, and whether it is negated; None: it has none."""
    prefix = f"transforms.{alias}."
    name, negated = config.get(prefix + "predicate"), config.get(prefix + "negate")
    try:
        negate = False if negated is None else parse(_NEGATE, negated)
    except ValueError as error:
        problems[prefix + "negate"] = str(error)
        return None
    if name is None:
        if negated is not None:
            problems[prefix + "negate"] = (
                f"was provided but there is no {prefix}predicate to be negated"
            )
        return None
    predicate = predicates.get(name.strip())
    if predicate is None:
        if name.strip() not in _aliases(config, "predicates", {}):
            problems[prefix + "predicate"] = f"{name!r} is not one of `predicates`"
        return None
    return predicate, negate


def _if(predicate: Predicate, negate: bool, transform: Transform) -> Transform:
    def chosen(record: ConnectRecord) -> ConnectRecord | None:
        return record if predicate(record) is negate else transform(record)

    return chosen


def _chain(stages: Sequence[Transform]) -> Transform:
    if len(stages) == 1:
        return stages[0]

    def chain(record: ConnectRecord) -> ConnectRecord | None:
        current: ConnectRecord | None = record
        for stage in stages:
            if current is None:
                return None
            current = stage(current)
        return current

    return chain
