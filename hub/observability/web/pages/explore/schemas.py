"""[core] Registry pages: all subjects, and one subject with its versions, a diff of two versions, and its
rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hub.caller import sees_subject
from hub.errors import NotFound, did_you_mean
from hub.observability.lag.consumers import LagRow
from hub.observability.lineage.open_lineage import Columns
from hub.observability.overview.overview import ViewLine
from hub.observability.web.layout import Pager, paged
from hub.observability.web.pages.index import latest_of, version_of
from hub.schema_registry.folder.diff import diff_schemas, readers
from hub.schema_registry.folder.search import Match
from hub.schema_registry.formats import InvalidSchema
from hub.schema_registry.model import subject_names
from hub.schema_registry.model.facts import SchemaStored
from hub.schema_registry.policy.policy import BY_DEFAULT, BY_SUBJECT
from hub.schema_registry.policy.policy_rules import text_of
from hub.schema_registry.registry.settings import DEFAULT_LEVEL
from hub.schema_registry.registry.snapshot import RegistryState, SubjectState, parsed_version
from hub.schema_registry.registry.state_machine import Registry

PAGE = 100
MOST_TEXT = 100_000
MOST_CHANGES = 200
MOST_TOUCHED = 100
_MOST_NEEDED = 500


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """A subject in the list. ``where``: where the search words matched."""

    subject: str
    topic: str
    is_key: bool
    schema_type: str
    version: int
    versions: int
    schema_id: int
    level: str
    owner: str
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubjectsPage:
    """The list of subjects. ``of``: number of all subjects; ``total``: number of matches."""

    q: str
    type: str
    rows: tuple[SubjectRow, ...]
    total: int
    of: int
    pager: Pager
    default_level: str


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version of the subject."""

    version: int
    schema_id: int
    schema_type: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class AppliedRule:
    """An effective rule, who set it, and how it was inherited down the tree."""

    key: str
    value: str
    set_by: str
    trail: str


@dataclass(frozen=True, slots=True)
class SubjectComparison:
    """Differences between versions ``against`` and ``version``. ``trouble``: why they cannot be compared.
    ``touched``: paths of changes that readers notice."""

    against: int
    version: int
    changes: tuple[tuple[str, str], ...]
    more: int
    new_reads_old: tuple[str, ...]
    old_reads_new: tuple[str, ...]
    trouble: str = ""
    touched: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewImpact:
    """A view that reads the topic: its columns with the fields that they are made of ("" stands for the
    choice of rows).

    ``touched``: columns made of a field that differs between the two compared versions.
    """

    view: str
    state: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    touched: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubjectImpact:
    """Impact of a change of the subject: views, other readers as (kind, name, state), and mirrors that carry
    the topic.

    ``more``: number of entries beyond the first hundred of each.
    """

    views: tuple[ViewImpact, ...] = ()
    readers: tuple[tuple[str, str, str], ...] = ()
    mirrors: tuple[str, ...] = ()
    more: int = 0


NO_IMPACT: Final = SubjectImpact()


@dataclass(frozen=True, slots=True)
class SubjectPage:
    """One subject, at one of its versions."""

    subject: str
    topic: str
    is_key: bool
    context: str
    versions: tuple[VersionLine, ...]
    version: int
    schema_id: int
    schema_type: str
    deleted: bool
    text: str
    cut: int
    references: tuple[tuple[str, str, int], ...]
    referenced_by: tuple[tuple[str, int], ...]
    metadata: Mapping[str, Any] | None
    level: str
    level_by: str
    rules: tuple[AppliedRule, ...]
    comparison: SubjectComparison | None
    impact: SubjectImpact = NO_IMPACT
    unmeasured: str | None = None


def subjects_page(
    registry: Registry, matches: Sequence[Match] | None, q: str, schema_type: str, number: int
) -> SubjectsPage:
    """Return the list. ``matches``: subjects that have the search words; None: no search."""
    every = [each for each in latest_of(registry) if sees_subject(each.subject)]
    where = None if matches is None else {each.subject: each.where for each in matches}
    if where is None:
        fit = every
    else:
        by_name = {each.subject: each for each in every}
        fit = [by_name[name] for name in where if name in by_name]
    if schema_type:
        fit = [each for each in fit if each.schema_type == schema_type]
    pager = paged(len(fit), number, PAGE)
    rows = tuple(
        _row(registry, each, (where or {}).get(each.subject, ())) for each in fit[pager.first : pager.last]
    )
    return SubjectsPage(q, schema_type, rows, len(fit), len(every), pager, registry.level_of(None))


def _row(registry: Registry, stored: SchemaStored, where: tuple[str, ...]) -> SubjectRow:
    effective = registry.rulebook.effective(stored.subject)
    properties = (stored.metadata or {}).get("properties") or {}
    return SubjectRow(
        stored.subject,
        effective.topic,
        effective.is_key,
        stored.schema_type,
        stored.version,
        len(registry.numbers(stored.subject)),
        stored.schema_id,
        registry.level_of(stored.subject),
        str(properties.get("owner") or registry.rulebook.owners.get(effective.topic, "")),
        where,
    )


@dataclass(frozen=True, slots=True)
class SubjectInputs:
    """Registry data for a subject's page: copied while the registry does not change, processed afterwards."""

    stored: SchemaStored
    against: SchemaStored | None
    state: RegistryState
    page: SubjectPage


def take(registry: Registry, subject: str, version: int | None, against: int | None) -> SubjectInputs:
    """Copy the subject at ``version`` (default: the newest). Raises NotFound with the nearest name."""
    numbers = registry.numbers(subject, deleted=True)
    if not numbers:
        raise NotFound(
            f'subject "{subject}" does not exist',
            hint=did_you_mean(
                subject, filter(sees_subject, registry.subjects), "all that there are: /schemas"
            ),
        )
    live = registry.numbers(subject)
    number = version if version is not None else (live or numbers)[-1]
    stored = registry.at(subject, number, deleted=True)
    if stored is None:
        raise NotFound(
            f'subject "{subject}" has no version {number}',
            hint=f"it has {', '.join(map(str, numbers[-20:]))}",
        )
    before = [each for each in (live if number in live else numbers) if each < number]
    other = against if against is not None else (before[-1] if before else None)
    compared = registry.at(subject, other, deleted=True) if other is not None and other != number else None
    found = [each for each in (stored, compared) if each]
    page = _page_of(registry, subject, stored, number, numbers)
    return SubjectInputs(stored, compared, needed(registry, found), page)


def _page_of(
    registry: Registry, subject: str, stored: SchemaStored, number: int, numbers: Sequence[int]
) -> SubjectPage:
    """Return the values of a version; its comparison comes later."""
    effective = registry.rulebook.effective(subject)
    own = registry.levels.get(subject_names.place(subject))
    above = registry.setting(subject_names.context_of(subject), "compatibilityLevel") or DEFAULT_LEVEL
    level, by = effective.level(own.level if own is not None else None, above)
    text = pretty(stored)
    return SubjectPage(
        subject,
        effective.topic,
        effective.is_key,
        subject_names.context_of(subject),
        tuple(
            VersionLine(each, of.schema_id, of.schema_type, of.deleted)
            for each in reversed(numbers)
            if (of := registry.at(subject, each, deleted=True)) is not None
        ),
        number,
        stored.schema_id,
        stored.schema_type,
        stored.deleted,
        text[:MOST_TEXT],
        max(0, len(text) - MOST_TEXT),
        tuple((each.name, each.subject, each.version) for each in stored.references),
        tuple(
            (use.subject, use.version)
            for schema_id in registry.referenced_by(subject, number)[:100]
            for use in registry.uses_of(schema_id)[:5]
            if sees_subject(use.subject)
        ),
        stored.metadata,
        level,
        _set_by_text(by),
        tuple(
            AppliedRule(key, text_of(key, each.value), each.set_by, each.trail)
            for key, each in sorted(effective.settings.items())
        ),
        None,
    )


def _set_by_text(by: str) -> str:
    return {BY_DEFAULT: "the registry's own setting", BY_SUBJECT: "the subject itself"}.get(
        by, f"the rules of {by}"
    )


def needed(registry: Registry, of: Sequence[SchemaStored]) -> RegistryState:
    """Return these versions with all their references, transitively."""
    found: dict[tuple[str, int], SchemaStored] = {}
    left = list(of)
    while left and len(found) < _MOST_NEEDED:
        each = left.pop()
        if (each.subject, each.version) in found:
            continue
        found[each.subject, each.version] = each
        for reference in each.references:
            other = registry.at(reference.subject, reference.version, deleted=True)
            if other is not None:
                left.append(other)
    by_subject: dict[str, list[SchemaStored]] = {}
    for each in found.values():
        by_subject.setdefault(each.subject, []).append(each)
    return RegistryState(
        {subject: SubjectState(tuple(map(version_of, versions))) for subject, versions in by_subject.items()}
    )


def compared(new: SchemaStored, old: SchemaStored | None, state: RegistryState) -> SubjectComparison | None:
    """Return the changes and the read compatibility in both directions; None without an older version.
    ``state``: as ``needed`` returns it."""
    if old is None:
        return None
    try:
        was, now = (parsed_version(state, version_of(each)) for each in (old, new))
        changes = diff_schemas(new.schema_type, was, now)
        both = readers(was, now)
    except InvalidSchema as error:
        return SubjectComparison(old.version, new.version, (), 0, (), (), error.message[:500])
    return SubjectComparison(
        old.version,
        new.version,
        tuple((each.kind, each.what) for each in changes[:MOST_CHANGES]),
        max(0, len(changes) - MOST_CHANGES),
        tuple(f"{each.field or each.path}: {each.what}; fix: {each.fix}" for each in both.new_reads_old[:50]),
        tuple(f"{each.field or each.path}: {each.what}; fix: {each.fix}" for each in both.old_reads_new[:50]),
        touched=tuple(dict.fromkeys(each.path for each in changes if each.is_visible_to_readers)),
    )


def impact_of(
    topic: str,
    touched: Sequence[str],
    views: Sequence[ViewLine],
    columns_of: Callable[[Collection[str]], Mapping[str, Columns]],
    rows: Sequence[LagRow],
    mirrors: Sequence[Mapping[str, Any]],
) -> SubjectImpact:
    """Return the topic's current readers, and by view the columns made of the topic's fields."""
    if not topic:
        return SubjectImpact()
    reading = [view for view in views if any(source.topic == topic for source in view.sources)]
    made = columns_of([view.name for view in reading[:MOST_TOUCHED]])
    found = []
    for view in reading[:MOST_TOUCHED]:
        columns = tuple(
            (column, paths)
            for column, origins in sorted(made.get(view.name, {}).items(), key=lambda each: not each[0])
            if (paths := tuple(dict.fromkeys(path for origin, path in origins if origin == topic)))
        )
        changed = tuple(
            column
            for column, paths in columns
            if any(_meets(path, change) for path in paths for change in touched)
        )
        found.append(ViewImpact(view.name, view.state, columns, changed))
    names = {view.name for view in reading}
    readers = sorted(
        {
            (row.kind, row.name, str(row.state))
            for row in rows
            if row.topic == topic and not (row.kind == "view" and row.name in names)
        }
    )
    carrying = sorted(
        {
            str(each["mirror"])
            for each in mirrors
            for row in each.get("partitions", ())
            if row["topic"] == topic and row["state"] != "left"
        }
    )
    more = sum(max(0, len(those) - MOST_TOUCHED) for those in (reading, readers, carrying))
    return SubjectImpact(tuple(found), tuple(readers[:MOST_TOUCHED]), tuple(carrying[:MOST_TOUCHED]), more)


def _meets(path: str, changed: str) -> bool:
    """Return whether one of two paths in a schema equals or contains the other; "" is the whole schema.

    >>> _meets("item.qty", "item"), _meets("item", "items")
    (True, False)
    """
    return (
        not changed
        or path == changed
        or f"{path}.".startswith(f"{changed}.")
        or f"{changed}.".startswith(f"{path}.")
    )


def pretty(stored: SchemaStored) -> str:
    """Return a schema's text with its JSON indented."""
    if stored.schema_type == "PROTOBUF":
        return stored.schema
    try:
        return json.dumps(json.loads(stored.schema), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return stored.schema
