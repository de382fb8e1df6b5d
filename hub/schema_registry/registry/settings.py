"""[core] Settings of subjects and contexts, by Confluent's names, and their valid values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from hub.schema_registry.compat.compatibility import POLICIES
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.data_contract import InvalidMetadata, check_metadata, check_rule_set
from hub.schema_registry.model.facts import LevelSet
from hub.schema_registry.model.levels import LEVELS
from hub.schema_registry.registry.errors import RequestRefused

DEFAULT_LEVEL = "BACKWARD"
DEFAULT_MODE = "READWRITE"

_LEVELS_ARE = (
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive"
)
_FLAGS = ("normalize", "validateFields", "validateNames", "validateRules")
_TEXTS = ("alias", "compatibilityGroup")
METADATA_SETTINGS = ("defaultMetadata", "overrideMetadata")
RULE_SETTINGS = ("defaultRuleSet", "overrideRuleSet")
SETTINGS = (*_TEXTS, *_FLAGS, "compatibilityPolicy", *METADATA_SETTINGS, *RULE_SETTINGS)


def settings_json(found: LevelSet | None, level_name: str = "compatibilityLevel") -> dict[str, Any]:
    """Return the settings of one place, without inherited ones."""
    if found is None:
        return {}
    level = {} if found.level is None else {level_name: found.level}
    return {**level, **{name: found.more[name] for name in SETTINGS if name in found.more}}


def checked_settings(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Validate changes of settings; return them by stored name, without unknown ones.

    Raises RequestRefused.
    """
    checked: dict[str, Any] = {}
    for name in ("compatibility", "compatibilityLevel"):
        if name in changes:
            level = changes[name]
            if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
                raise RequestRefused(422, 42203, _LEVELS_ARE)
            checked["compatibilityLevel"] = None if level is None else level.upper()
    for name in SETTINGS:
        if name not in changes:
            continue
        value = changes[name]
        checked[name] = value if value != "" else None
        if checked[name] is None:
            continue
        if name == "compatibilityPolicy":
            if not isinstance(value, str) or value.upper() not in POLICIES:
                raise RequestRefused(
                    422, 42203, "Invalid compatibility policy. Valid values are strict and lenient"
                )
            checked[name] = value.upper()
        elif name in RULE_SETTINGS:
            check_rule_set(value)
        elif name in METADATA_SETTINGS:
            try:
                check_metadata(value)
            except InvalidMetadata as error:
                raise RequestRefused(422, 422, f"{name}: {error.message}") from None
        elif not isinstance(value, bool if name in _FLAGS else str):
            raise RequestRefused(422, 422, f"{name}: not of the type that it has to be")
    return checked


def is_subject(place: str | None) -> TypeGuard[str]:
    """Return True for a subject, False for a context or the global place."""
    return place is not None and bool(names.split(place)[1])
