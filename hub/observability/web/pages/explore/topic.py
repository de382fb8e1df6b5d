"""[core] Page of one topic: owner, throughput, schemas, readers, and the views made of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hub.errors import nearest
from hub.observability.lag.consumers import LagRow
from hub.observability.lag.states import SEVERITY, LagState
from hub.observability.overview.overview import DLQ_SUFFIX, Overview, TopicKind, TopicLine
from hub.observability.web.pages.estate import LakeTableLine
from hub.schema_registry.registry.state_machine import Registry
from hub.topics.tree.tree import TopicSpec

_ALIKE = 3
_MOST_COMPARED = 2_000


@dataclass(frozen=True, slots=True)
class SubjectLine:
    """A subject of the topic, with its newest version."""

    subject: str
    is_key: bool
    version: int
    versions: int
    schema_id: int
    schema_type: str
    level: str


@dataclass(frozen=True, slots=True)
class TopicReadingView:
    """A view that reads the topic, and the lag of that source."""

    view: str
    doc: str
    state: str
    lag_state: str
    records: int | None
    seconds: float | None
    error_s: float | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Values of the page.

    ``made_by``: the view whose changelog it is. ``dead_letters``: its DLQ, if one exists. ``missing``: parts
    that could not be read, and why. ``unmeasured``: see PageSources. ``lake`` None: it has no Iceberg table.
    """

    name: str
    line: TopicLine
    owner: str
    doc: str
    tags: tuple[str, ...]
    managed: bool
    latency_ms: int | None
    freshness_ms: int | None
    compatibility: str | None
    audit: str | None
    key_field: str | None
    subjects: tuple[SubjectLine, ...]
    groups: tuple[LagRow, ...]
    views: tuple[TopicReadingView, ...]
    made_by: str | None
    dead_letters: str | None
    missing: tuple[str, ...] = ()
    lag_ms: int | None = None
    completeness: float | None = None
    unmeasured: str | None = None
    lake: LakeTableLine | None = None


def topic_page(
    line: TopicLine,
    overview: Overview,
    lag: Iterable[LagRow],
    spec: TopicSpec | None,
    subjects: Sequence[SubjectLine],
    names: Iterable[str],
    missing: tuple[str, ...] = (),
    unmeasured: str | None = None,
    lake: LakeTableLine | None = None,
) -> TopicPage:
    """Return the page's values. ``names``: all topics."""
    name = line.name
    made_by = name.partition(".")[2] if line.kind is TopicKind.changelog else None
    owners = [view.owner for view in overview.views if view.name == made_by]
    rows = sorted(
        (row for row in lag if row.topic == name and row.kind != "view"),
        key=lambda row: (SEVERITY[LagState(row.state)], -(row.seconds or 0.0), row.name),
    )
    dead = name + DLQ_SUFFIX
    return TopicPage(
        name,
        line,
        spec.owner if spec is not None else next(iter(owners), ""),
        spec.doc if spec is not None else "",
        spec.tags if spec is not None else (),
        spec is not None,
        spec.slo.latency_ms if spec is not None else None,
        spec.slo.freshness_ms if spec is not None else None,
        spec.compatibility if spec is not None else None,
        spec.audit if spec is not None else None,
        spec.key if spec is not None else None,
        tuple(subjects),
        tuple(rows),
        _reading_views(overview, name),
        made_by,
        dead if dead in set(names) else None,
        missing,
        spec.slo.lag_ms if spec is not None else None,
        spec.slo.completeness if spec is not None else None,
        unmeasured,
        lake,
    )


def _reading_views(overview: Overview, topic: str) -> tuple[TopicReadingView, ...]:
    """Return the views that read a topic, with their lag on it."""
    return tuple(
        TopicReadingView(
            view.name, view.doc, view.state, source.state, source.records, source.seconds, source.error_s
        )
        for view in overview.views
        for source in view.sources
        if source.topic == topic
    )


def subjects_of(registry: Registry, topic: str) -> tuple[SubjectLine, ...]:
    """Return the topic's subjects, values first."""
    found = []
    for subject in (f"{topic}-value", f"{topic}-key"):
        numbers = registry.numbers(subject)
        if not numbers:
            continue
        latest = registry.version(subject, "latest")
        found.append(
            SubjectLine(
                subject,
                subject.endswith("-key"),
                latest.version,
                len(numbers),
                latest.schema_id,
                latest.schema_type,
                registry.level_of(subject),
            )
        )
    return tuple(found)


def near(name: str, names: Sequence[str]) -> str | None:
    """Return the most similar topic among those with the same beginning: comparing a whole large estate
    takes long."""
    alike = [each for each in names if each[:_ALIKE] == name[:_ALIKE]] or names
    return nearest(name, alike[:_MOST_COMPARED])
