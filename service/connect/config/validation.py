"""Whether a configuration is right: every key, its value, and what keys mean together.

The answer is that of Kafka's `PUT /connector-plugins/…/config/validate`, from which user interfaces
make their forms: the definition of every key, its value, and what is wrong with it.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.connect.config.common import DLQ_TOPIC, REFUSED_OVERRIDES
from service.connect.config.definitions import Definitions, class_names, definitions, problems_of
from service.connect.config.keys import REQUIRED, Config, Key, KeyType
from service.connect.config.secrets import shown, why_secret
from service.connect.config.values import parse
from service.connect.connectors.api import Environment, Plugin, PluginKind
from service.connect.data.errors import ConfigFault
from service.connect.transforms.choice import transforms_of
from storage.topics.items import NAME_CHARS_MAX, is_name

KEYS_MAX: Final = 1000
VALUE_CHARS_MAX: Final = 64 * 1024
CONFIG_CHARS_MAX: Final = 256 * 1024
"""Of all keys and values; an item of the table holds a configuration."""


@dataclass(frozen=True, slots=True)
class ConfigKeyInfo:
    """A key, its value, and what is wrong with it."""

    key: Key
    order: int
    value: str | None
    """As it may be shown; None: unset, without default."""
    errors: Sequence[str]


@dataclass(frozen=True, slots=True)
class ConfigValidation:
    name: str
    """The class of the connector."""
    infos: Sequence[ConfigKeyInfo]

    @property
    def errors(self) -> list[str]:
        return [error for info in self.infos for error in info.errors]

    def body(self) -> dict[str, Any]:
        """Return what Kafka calls `ConfigInfos`."""
        return {
            "name": self.name,
            "error_count": len(self.errors),
            "groups": list(dict.fromkeys(info.key.group for info in self.infos if info.key.group)),
            "configs": [_info_body(info) for info in self.infos],
        }


def validate(plugin: Plugin, config: Config, environment: Environment) -> ConfigValidation:
    """Return every key that `config` has or can have, with all that is wrong."""
    found = definitions(plugin, config)
    problems: dict[str, list[str]] = {
        key.name: problems_of(found, key, config) for key in found.keys.values()
    }
    for name, text in config.items():
        wrong = problems.setdefault(name, [])
        if name in REFUSED_OVERRIDES:
            wrong.append(REFUSED_OVERRIDES[name])
        elif not found.knows(name):
            wrong.append(_unknown(name, found))
        if len(text) > VALUE_CHARS_MAX:
            wrong.append(f"has {len(text)} characters, the limit is {VALUE_CHARS_MAX}")
        elif (why := _why_secret(name, text, found)) is not None:
            wrong.append(why)
    if not any(problems.values()):
        _add(problems, _chain_problems(config))
    if plugin.kind is PluginKind.SINK:
        _add(problems, _sink_problems(config, problems))
    else:
        _add(problems, _source_problems(plugin, config))
    _add(problems, _dead_letter_problems(config))
    if not any(problems[key.name] for key in plugin.keys):
        _add(problems, plugin.check(config, environment))
    return ConfigValidation(plugin.class_name, list(_infos(found, config, problems)))


def check_size(config: Config) -> str | None:
    """Return why a configuration is too large to be stored; None: it is not."""
    if len(config) > KEYS_MAX:
        return f"the configuration has {len(config)} keys, the limit is {KEYS_MAX}"
    chars = sum(len(name) + len(text) for name, text in config.items())
    if chars > CONFIG_CHARS_MAX:
        return f"the configuration has {chars} characters, the limit is {CONFIG_CHARS_MAX}"
    return None


def shown_config(plugin: Plugin | None, config: Config) -> dict[str, str]:
    """Return a configuration as answers show it."""
    return shown(config, {} if plugin is None else definitions(plugin, config).keys)


def _add(problems: dict[str, list[str]], more: Mapping[str, str]) -> None:
    for name, text in more.items():
        problems.setdefault(name, []).append(text)


def _why_secret(name: str, text: str, found: Definitions) -> str | None:
    if name.startswith(("transforms.", "predicates.")):
        return None  # Their values are patterns and names of fields.
    return why_secret(name, text, found.keys.get(name))


def _unknown(name: str, found: Definitions) -> str:
    for what in ("transforms", "predicates"):
        alias = name.removeprefix(f"{what}.").partition(".")[0]
        if name.startswith(f"{what}.") and f"{what}.{alias}.type" not in found.keys:
            return f"{what} does not list {alias!r}"
    near = difflib.get_close_matches(name, [*found.keys, *found.accepted], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no configuration {name!r} of this connector{hint}"


def _texts(config: Config, name: str) -> list[str]:
    return [part for part in parse(_LIST, config.get(name, "")) if part]


_LIST: Final = Key(name="", type=KeyType.LIST)


def _chain_problems(config: Config) -> dict[str, str]:
    """Return what is wrong with transforms, beyond the value of a single key."""
    try:
        transforms_of(config)
    except ConfigFault as fault:
        return fault.problems
    return {}


def _sink_problems(config: Config, problems: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what is wrong with the topics of a sink."""
    found: dict[str, str] = {}
    topics, pattern = _texts(config, "topics"), config.get("topics.regex", "").strip()
    for topic in topics:
        if not is_name(topic):
            found["topics"] = f"{topic!r:.300} cannot name a topic"
    if topics and pattern:
        both = "topics and topics.regex are mutually exclusive options, but both are set."
        return found | {"topics": both, "topics.regex": both}
    if not topics and not pattern:
        neither = "Must configure one of topics or topics.regex"
        return found | {"topics": neither, "topics.regex": neither}
    dead_letters = config.get(DLQ_TOPIC, "").strip()
    if dead_letters and dead_letters in topics:
        found["topics"] = (
            f"{DLQ_TOPIC} is {dead_letters!r}, which the connector would read itself: name another"
        )
    if pattern and (why := _pattern_problem(pattern, dead_letters)):
        found["topics.regex"] = why
    return found


def _source_problems(plugin: Plugin, config: Config) -> dict[str, str]:
    """Return which promises about transactions are wanted that the source does not give."""
    found: dict[str, str] = {}
    if config.get("exactly.once.support", "").strip().lower() == "required":
        why = plugin.why_not_once(config)
        if why:
            found["exactly.once.support"] = f"required cannot be promised: {why}"
    if config.get("transaction.boundary", "").strip().lower() == "connector":
        found["transaction.boundary"] = (
            "The connector does not define transaction boundaries of its own: use poll or interval"
        )
    return found


def _pattern_problem(pattern: str, dead_letters: str) -> str | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        return f"is no pattern of RE2: {error}"
    if dead_letters and compiled.fullmatch(dead_letters) is not None:
        return f"matches {dead_letters!r}, the topic of its own dead letters: name another"
    return None


def _dead_letter_problems(config: Config) -> dict[str, str]:
    topic = config.get(DLQ_TOPIC, "").strip()
    if not topic:
        return {}
    if not is_name(topic):
        return {DLQ_TOPIC: f"cannot name a topic: use 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -"}
    if config.get("errors.tolerance", "none").strip().lower() != "all":
        return {DLQ_TOPIC: "has no effect unless errors.tolerance is all: a task stops at errors"}
    return {}


def _infos(
    found: Definitions, config: Config, problems: Mapping[str, Sequence[str]]
) -> Iterator[ConfigKeyInfo]:
    orders: dict[str, int] = {}
    visible = shown(config, found.keys)
    others = {
        name: Key(name=name, type=KeyType.STRING, default=None, about="Has no effect.")
        for name in (*config, *problems)
        if name not in found.keys
    }
    for name, key in {**found.keys, **others}.items():
        order = orders[key.group] = orders.get(key.group, 0) + 1
        value = visible.get(name, _default_text(key))
        errors = [_sentence(name, value, why) for why in problems.get(name, ())]
        yield ConfigKeyInfo(key, order, value, errors)


def _sentence(name: str, value: str | None, why: str) -> str:
    """Return an error that names its key, as Kafka's do."""
    if name in why or why[:1].isupper():
        return why
    given = "" if value is None else f" {value[:300]}"
    return f"Invalid value{given} for configuration {name}: {why}"


def _default_text(key: Key) -> str | None:
    """Return the default of a key as a configuration would have it."""
    if key.default is REQUIRED or key.default is None:
        return None
    if isinstance(key.default, bool):
        return str(key.default).lower()
    if isinstance(key.default, list | tuple):
        return ",".join(key.default)
    return str(key.default)


def _info_body(info: ConfigKeyInfo) -> dict[str, Any]:
    key = info.key
    return {
        "definition": {
            "name": key.name,
            "type": key.type.value,
            "required": key.default is REQUIRED,
            "default_value": _default_text(key),
            "importance": key.importance.value,
            "documentation": key.about,
            "group": key.group or None,
            "order_in_group": info.order,
            "width": key.width,
            "display_name": key.display_name or key.name,
            "dependents": list(key.dependents),
        },
        "value": {
            "name": key.name,
            "value": info.value,
            "recommended_values": list(key.choices) or class_names(key),
            "errors": list(info.errors),
            "visible": True,
        },
    }


def keys_body(plugin: Plugin) -> list[dict[str, Any]]:
    """Return the definitions of a connector's keys, as `/connector-plugins/…/config` lists them."""
    return part_keys_body([*definitions(plugin, {}).keys.values()])


def part_keys_body(keys: Sequence[Key]) -> list[dict[str, Any]]:
    """Return the definitions of the keys of a converter, a transform or a predicate."""
    infos = [ConfigKeyInfo(key, order, None, ()) for order, key in enumerate(keys, 1)]
    found: list[dict[str, Any]] = [_info_body(info)["definition"] for info in infos]
    return found
