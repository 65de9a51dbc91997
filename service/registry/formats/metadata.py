"""What a schema says besides its text: metadata and rules, kept as JSON.

A subject may add to them: its defaults hold unless the schema says otherwise, its overrides always.
The sum of both is registered, and is part of what makes a schema another one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

_Json: TypeAlias = dict[str, Any]

_MAPS: Final = ("tags", "properties")
_LISTS_OF_RULES: Final = ("migrationRules", "domainRules", "encodingRules")

_VALUES_OF_RULES: Final = {
    "kind": ("TRANSFORM", "CONDITION"),
    "mode": ("WRITEREAD", "WRITE", "READ", "UPDOWN", "UPGRADE", "DOWNGRADE"),
}
_DEFAULTS_OF_RULES: Final[_Json] = {
    **{name: values[0] for name, values in _VALUES_OF_RULES.items()},
    "disabled": False,
}
"""As Confluent's registry completes a rule that does not say what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    """What is added to schemas; empty: nothing."""

    default_metadata: bytes = b""
    override_metadata: bytes = b""
    default_rule_set: bytes = b""
    override_rule_set: bytes = b""

    def metadata(self, given: bytes) -> bytes:
        """Return the metadata of a schema that came with `given`."""
        if not (self.default_metadata or self.override_metadata):
            return given
        return _merged((self.default_metadata, given, self.override_metadata), _metadata)

    def rule_set(self, given: bytes) -> bytes:
        """Return the rules of a schema that came with `given`."""
        if not (self.default_rule_set or self.override_rule_set):
            return given
        return _merged((self.default_rule_set, given, self.override_rule_set), _rule_set)


def property_of(metadata: bytes, name: str) -> str | None:
    """Return a property of the metadata of a schema."""
    return properties(metadata).get(name)


def properties(metadata: bytes) -> dict[str, str]:
    """Return the properties of the metadata of a schema that are texts."""
    found = _object(metadata).get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def normal_metadata(metadata: bytes) -> bytes:
    """Return valid metadata in the one form for all that say the same; empty: it says nothing.

    Clients differ in the order of names, and in how they say nothing; ids must not.
    """
    whole = _filled(_object(metadata))
    if "tags" in whole:
        whole["tags"] = {path: sorted(set(tags)) for path, tags in whole["tags"].items()}
    if "sensitive" in whole:
        whole["sensitive"] = sorted(set(whole["sensitive"]))
    return _encoded(whole)


def normal_rule_set(rule_set: bytes) -> bytes:
    """Return valid rules in the one form for all that say the same; empty: there are none."""
    whole = _filled(_object(rule_set))
    for kind in _LISTS_OF_RULES:
        if kind in whole:
            whole[kind] = [_normal_rule(rule) for rule in whole[kind]]
    return _encoded(whole)


def _normal_rule(rule: _Json) -> _Json:
    rule = {**_DEFAULTS_OF_RULES, **_filled(rule)}
    if "tags" in rule:
        rule["tags"] = sorted(set(rule["tags"]))
    return rule


def without_property(metadata: bytes, name: str) -> bytes:
    """Return the metadata of a schema without a property."""
    whole = _object(metadata)
    kept = {each: text for each, text in whole["properties"].items() if each != name}
    return _encoded(_filled({**whole, "properties": kept}))


def changed_rules(rule_set: bytes, merged: bytes, removed: Sequence[str]) -> bytes:
    """Return rules with others merged into them, and without those that are named."""
    whole = _rule_set(_object(rule_set), _object(merged))
    for kind in _LISTS_OF_RULES:
        if kind in whole:
            rules = _rules(whole[kind])
            whole[kind] = [rule for rule in rules if rule.get("name") not in removed]
    return _encoded(_filled(whole))


def types_of_rules(rule_set: bytes) -> set[str]:
    """Return the types of the rules of a schema."""
    found = _object(rule_set)
    return {
        str(rule["type"])
        for name in _LISTS_OF_RULES
        for rule in _rules(found.get(name))
        if "type" in rule
    }


def why_not_metadata(metadata: bytes) -> str:
    """Return what is wrong with metadata that is to be merged; empty: nothing."""
    value = _object(metadata)
    for name in _MAPS:
        if not isinstance(value.get(name) or {}, dict):
            return f"{name} is an object"
    if not all(_is_texts(each) for each in (value.get("tags") or {}).values()):
        return "each of tags is a list of strings"
    if not all(isinstance(text, str) for text in (value.get("properties") or {}).values()):
        return "each of properties is a string"
    if not _is_texts(value.get("sensitive") or []):
        return "sensitive is a list of strings"
    return ""


def why_not_rule_set(rule_set: bytes) -> str:
    """Return what is wrong with rules that are to be merged; empty: nothing."""
    value = _object(rule_set)
    names: set[str] = set()
    for kind in _LISTS_OF_RULES:
        rules = value.get(kind) or []
        if not isinstance(rules, list):
            return f"{kind} is a list"
        for rule in rules:
            name = rule.get("name") if isinstance(rule, dict) else None
            if not isinstance(name, str) or not name:
                return f"each of {kind} is an object with a name"
            if name in names:
                return f"Found rule with duplicate name '{name:.100}'"
            if why := _why_not_rule(rule):
                return f"{why}, in the rule '{name:.100}'"
            names.add(name)
    return ""


def _why_not_rule(rule: _Json) -> str:
    for name, values in _VALUES_OF_RULES.items():
        if rule.get(name) not in (None, "", *values):
            return f"{name} is one of {', '.join(values)}"
    if not _is_texts(rule.get("tags") or []):
        return "tags is a list of strings"
    return ""


def _encoded(whole: _Json) -> bytes:
    return msgspec.json.encode(whole, order="deterministic") if whole else b""


def _merged(parts: Iterable[bytes], merge: Callable[[_Json, _Json], _Json]) -> bytes:
    """Return the sum of several objects, later ones before earlier ones."""
    whole: _Json = {}
    for part in parts:
        if part:
            whole = merge(whole, _object(part))
    return _encoded(whole)


def _metadata(old: _Json, new: _Json) -> _Json:
    merged = {**old, **_filled(new)}
    for name in _MAPS:
        if old.get(name) and new.get(name):
            merged[name] = {**old[name], **new[name]}
    if old.get("sensitive") and new.get("sensitive"):
        merged["sensitive"] = sorted({*old["sensitive"], *new["sensitive"]})
    return merged


def _rule_set(old: _Json, new: _Json) -> _Json:
    merged = {**old, **_filled(new)}
    for kind in _LISTS_OF_RULES:
        ours, theirs = _rules(old.get(kind)), _rules(new.get(kind))
        if ours and theirs:
            names = {rule.get("name") for rule in theirs}
            merged[kind] = [*(rule for rule in ours if rule.get("name") not in names), *theirs]
    return merged


def _filled(part: _Json) -> _Json:
    """Return what `part` says; what is empty hides nothing."""
    return {name: value for name, value in part.items() if value not in (None, "", [], {})}


def _rules(value: object) -> Sequence[_Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _object(value: bytes) -> _Json:
    found = msgspec.json.decode(value) if value else {}
    assert isinstance(found, dict), found
    return found
