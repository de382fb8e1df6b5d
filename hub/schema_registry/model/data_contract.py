"""[core] Metadata and rule sets of schemas ("data contracts"): validation, and merging with settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from hub.errors import CallerError

LISTS = ("migrationRules", "domainRules", "encodingRules")
KINDS = ("TRANSFORM", "CONDITION")
VERSION = "confluent:version"  # metadata property with the version's number, kept by the registry
MODES = ("UPGRADE", "DOWNGRADE", "UPDOWN", "WRITE", "READ", "WRITEREAD")


class InvalidRules(CallerError):
    """A rule set that no client could apply."""

    code = "HUB-1212"


class InvalidMetadata(CallerError):
    """Metadata in a form that clients cannot read."""

    code = "HUB-1213"


def check_rule_set(rules: Any) -> None:
    """Raise InvalidRules for a rule set that clients cannot read.

    It must be an object of lists of rules with unique names; Java's client fails on a field of another type.
    """
    if not isinstance(rules, dict):
        raise InvalidRules("the rule set is not an object")
    if not is_writable(rules):
        raise InvalidRules("the rule set is nested too deep")
    for part in LISTS:
        each_rule = rules.get(part)
        if each_rule is None:
            continue
        if not isinstance(each_rule, list) or not all(isinstance(each, dict) for each in each_rule):
            raise InvalidRules(f"{part} is not a list of rules")
        used_names: set[str] = set()
        for each in each_rule:
            name = each.get("name")
            if not isinstance(name, str) or not name.strip():
                raise InvalidRules(f"a rule in {part} has no name")
            if name in used_names:
                raise InvalidRules(f"Found rule with duplicate name '{name}'")
            used_names.add(name)
            wrong = next((field for field in each if not _FIELD_IS.get(field, _any)(each[field])), None)
            if wrong is not None:
                raise InvalidRules(f"rule '{name}': {wrong} is not of the type that it has to be")
            if each.get("kind") is not None and each["kind"] not in KINDS:
                raise InvalidRules(f"rule '{name}': kind is none of {', '.join(KINDS)}")
            if each.get("mode") is not None and each["mode"] not in MODES:
                raise InvalidRules(f"rule '{name}': mode is none of {', '.join(MODES)}")


def check_metadata(metadata: Any) -> None:
    """Raise InvalidMetadata unless properties are strings and tags lists of strings."""
    if not isinstance(metadata, dict):
        raise InvalidMetadata("metadata: no object")
    if not is_writable(metadata):
        raise InvalidMetadata("metadata: nested too deep")
    properties = metadata.get("properties")
    if properties is not None and not _texts_by_name(properties):
        raise InvalidMetadata("metadata: properties are not texts by name")
    tags = metadata.get("tags")
    if tags is not None and not (isinstance(tags, dict) and all(map(_texts, tags.values()))):
        raise InvalidMetadata("metadata: tags are not lists of texts by path")
    sensitive = metadata.get("sensitive")
    if sensitive is not None and not _texts(sensitive):
        raise InvalidMetadata("metadata: sensitive is not a list of names")


def is_writable(value: Any) -> bool:
    """Return True if records and answers can contain the value; JSON may be read four times as deep as
    written.
    """
    try:
        orjson.dumps([[[value]]])
    except TypeError:
        return False
    return True


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _texts_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _any(_value: Any) -> bool:
    return True


def _or_none(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kind)


# Unknown fields, which newer clients send, are not checked.
_FIELD_IS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("doc", "type", "expr", "onSuccess", "onFailure"), _or_none(_is(str))),
    "tags": _or_none(_texts),
    "params": _or_none(_texts_by_name),
    "disabled": _or_none(_is(bool)),
}


def merged_metadata(*layers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Merge metadata; later layers win: properties by name; tags of a path and sensitive names are
    combined.
    """

    def combined(name: str, before: Any, value: Any) -> Any:
        match name:
            case "properties":
                return {**before, **value}
            case "tags":
                return {path: _added(before.get(path), value.get(path)) for path in {**before, **value}}
            case "sensitive":
                return _added(before, value)
            case _:
                return value

    return _merged(layers, combined)


def merged_rules(*layers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Merge rule sets; later layers win: a rule replaces the one with its name, others are added."""

    def combined(name: str, before: Any, value: Any) -> Any:
        if name not in LISTS:
            return value
        own = {each.get("name") for each in value}
        return [each for each in before if each.get("name") not in own] + value

    return _merged(layers, combined)


def _merged(
    layers: Iterable[Mapping[str, Any] | None], combined: Callable[[str, Any, Any], Any]
) -> Mapping[str, Any] | None:
    """Merge layers. ``combined``: value of a name that has one in both. An empty value changes nothing."""
    merged: dict[str, Any] | None = None
    for layer in layers:
        if layer is None:
            continue
        if merged is None:
            merged = dict(layer)
            continue
        for name, value in layer.items():
            before = merged.get(name)
            if before and value:
                merged[name] = combined(name, before, value)
            elif not before and value is not None:
                merged[name] = value
    return merged


def properties_of(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the properties, or {} when they are not an object: records of other registries are not
    validated.
    """
    found = (metadata or {}).get("properties")
    return found if isinstance(found, dict) else {}


def has_version(metadata: Mapping[str, Any] | None) -> bool:
    """Return True if the metadata contains a version number."""
    return VERSION in properties_of(metadata)


def with_version(metadata: Mapping[str, Any] | None, version: int) -> Mapping[str, Any]:
    """Return the metadata with this version's number."""
    return {**(metadata or {}), "properties": {**properties_of(metadata), VERSION: str(version)}}


def without_version(metadata: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the metadata without a version number; None when it contains nothing else."""
    if metadata is None or not has_version(metadata):
        return metadata
    others = {name: each for name, each in metadata["properties"].items() if name != VERSION}
    return {name: each for name, each in {**metadata, "properties": others}.items() if each} or None


def same_metadata(requested: Mapping[str, Any] | None, stored: Mapping[str, Any] | None) -> bool:
    """Return True if stored metadata matches the requested one; None requests nothing.

    A version number matters only when it is requested.
    """
    if requested is None or requested == stored:
        return True
    if stored is None or has_version(requested) or not has_version(stored):
        return False
    return (without_version(stored) or {}) == {name: each for name, each in requested.items() if each}


def rule_types(rules: Mapping[str, Any] | None) -> set[str]:
    """Return the types of all rules of a rule set."""
    lists = [(rules or {}).get(part) for part in LISTS]
    every = [each for found in lists if isinstance(found, list) for each in found]
    return {str(each.get("type")) for each in every if isinstance(each, dict)}


def without_rules(rules: Mapping[str, Any] | None, gone: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the rule set without the rules of these names."""
    if rules is None:
        return None
    return {
        part: [each for each in found if each.get("name") not in gone] if part in LISTS and found else found
        for part, found in rules.items()
    }


def _added(before: list[str] | None, after: list[str] | None) -> list[str]:
    return list(dict.fromkeys([*(before or ()), *(after or ())]))
