"""[core] Set and remove settings and modes of a subject, a context or the registry."""

from __future__ import annotations

from hub.schema_registry.model import subject_names as names
from hub.schema_registry.model.facts import MODES, Fact, LevelSet, ModeSet
from hub.schema_registry.registry.commands import CommandDecision, SetLevel, SetMode
from hub.schema_registry.registry.decide_delete import erasures
from hub.schema_registry.registry.errors import RequestRefused, not_permitted, subject_not_found, valid_place
from hub.schema_registry.registry.preconditions import unreferenced, writable
from hub.schema_registry.registry.queries import RegistryQueries
from hub.schema_registry.registry.settings import checked_settings, is_subject, settings_json


def set_level(registry: RegistryQueries, command: SetLevel) -> CommandDecision:
    """Change or remove settings. Raises RequestRefused."""
    place = valid_place(command.subject)
    before = registry.levels.get(place)
    if command.changes is None:
        if before is None and place is not None:
            raise subject_not_found(str(command.subject))
        writable(registry, place)
        was = registry.settings(place) if place is None else settings_json(before)
        facts = [] if before is None else [LevelSet(place, None, {}, before.key)]
        return CommandDecision(facts, was)
    changes = checked_settings(command.changes)
    writable(registry, place)
    level = before.level if before is not None else None
    more = dict(before.more) if before is not None else {}
    if "compatibilityLevel" in changes:
        level = changes.pop("compatibilityLevel")
        loose = (
            registry.rulebook.refused_level(place, level) if level is not None and is_subject(place) else None
        )
        if loose is not None:
            raise RequestRefused(422, 42203, str(loose))
    for name, value in changes.items():
        if value is None:
            more.pop(name, None)
        else:
            more[name] = value
    after = LevelSet(place, level, more, before.key if before is not None else None)
    answer = settings_json(after, "compatibility")
    unchanged = before is None and level is None and not more
    return CommandDecision([] if unchanged else [after], answer)


def set_mode(registry: RegistryQueries, command: SetMode) -> CommandDecision:
    """Set or remove a mode; import mode removes soft-deleted versions first. Raises RequestRefused."""
    place = valid_place(command.subject)
    before = registry.modes.get(place)
    below: list[Fact] = [
        ModeSet(each, None, found.key)
        for each, found in registry.modes.items()
        if command.recursive and each is not None and each != place and names.within(each, place)
    ]
    own_key = before.key if before is not None else None
    if command.mode is None:
        if before is None and place is not None:
            raise subject_not_found(str(command.subject))
        was = registry.mode_of(place) if before is None else before.mode
        return CommandDecision([*([] if before is None else [ModeSet(place, None, own_key)]), *below], was)
    if command.mode not in MODES:
        raise RequestRefused(422, 42204, f"Invalid mode. Valid values are {', '.join(MODES)}")
    gone: list[Fact] = []
    if command.mode == "IMPORT" and registry.mode_of(place) != "IMPORT" and not command.force:
        if any(registry.numbers(each) for each in registry.subjects if names.within(each, place)):
            raise not_permitted("Cannot import since found existing subjects")
        # Soft-deleted versions would conflict with imported ids and versions.
        deleted = list(registry.deleted_within(place))
        for each in deleted:
            unreferenced(registry, each)
        gone = list(erasures(registry, deleted))
    return CommandDecision([*gone, ModeSet(place, command.mode, own_key), *below], command.mode)
