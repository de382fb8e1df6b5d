"""[core] Stages of an entity plan: the columns of the union, the aggregation, and the latest entry of each
identity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hub.materializers.definition.declared import EXPIRY, LAST_EVENT_AT
from hub.materializers.definition.entity_plan import ORIGIN, EntityPlan, SourcePlan, UnionColumn, has_value
from hub.materializers.types.avro_types import AvroType, has_map


@dataclass(slots=True)
class SourceReads:
    """Columns of one source that a view reads, by where it reads them. Ordered sets."""

    used: dict[str, None] = field(default_factory=dict)
    latest: dict[str, None] = field(default_factory=dict)
    in_sets: dict[str, None] = field(default_factory=dict)
    in_natives: dict[str, None] = field(default_factory=dict)
    kept: dict[str, None] = field(default_factory=dict)
    on_edges: dict[str, None] = field(default_factory=dict)


def kept_column(source: str, column: str) -> str:
    return f"t_{source}_{column}"


def with_entries(source: SourcePlan, reads: SourceReads, unavailable: frozenset[str]) -> SourcePlan:
    """Return the source with its columns of the union. ``unavailable``: columns that updates may leave
    out.
    """
    rank, name = rank_of(source), source.name
    entries = [UnionColumn(newest_of(source), each_once(*rank, *reads.latest, *ORIGIN))]
    if source.unique is not None:
        kept = each_once(*rank, "_unique", *reads.in_sets)
        entries.append(UnionColumn(identified_of(source), kept, "_unique"))
    if reads.in_natives:
        entries.append(UnionColumn(source.tag, tuple(reads.in_natives)))
    entries += [UnionColumn(kept_column(name, each), (*rank, each), has_value(each)) for each in reads.kept]
    whole = unavailable & {*reads.on_edges, *reads.in_sets, *reads.in_natives}
    return replace(source, entries=tuple(entries), kept=tuple(reads.kept), whole=tuple(sorted(whole)))


def aggregates(
    sources: Iterable[SourcePlan], types: Mapping[str, Mapping[str, AvroType]]
) -> Iterator[tuple[str, str]]:
    """Yield what the aggregation keeps of each source: its latest event, columns that updates leave out,
    entries.
    """
    for source in sources:
        newest = newest_of(source)
        # A struct that contains a map cannot be ordered.
        if has_map(list(types[source.name].values())):
            rank = ", ".join(f"{newest}.{name}" for name in rank_of(source))
            yield source.latest, f"MAX_BY({newest}, STRUCT({rank})) FILTER (WHERE {newest} IS NOT NULL)"
        else:
            yield source.latest, f"MAX({newest})"
        for each in source.kept:
            yield kept_column(source.name, each), f"MAX({kept_column(source.name, each)})"
        if source.unique is not None:
            # A list is enough: no event comes twice, and a set would compare each of them.
            yield f"u_{source.name}", f"COLLECT_LIST({identified_of(source)})"


def uniques(sources: Iterable[SourcePlan]) -> Iterator[tuple[str, str]]:
    """Yield ``r_<source>``, the latest entry of each identity. Sorted by order, so that the last entry
    wins in the map."""
    for source in sources:
        if source.unique is not None:
            entries = f"TRANSFORM(ARRAY_SORT(u_{source.name}), _e -> STRUCT(_e._unique AS key, _e AS value))"
            yield f"r_{source.name}", f"MAP_VALUES(MAP_FROM_ENTRIES({entries}))"


def expiring(shape: EntityPlan, topic: str) -> EntityPlan:
    """Add what a ttl needs. Times are in milliseconds, as in stores: the cutoff that is written is a time
    that was read."""
    expiry = SourcePlan(EXPIRY, topic, ("cutoff",), "_key", None, False, None, None)
    expiry = replace(expiry, entries=(UnionColumn(expiry.tag, ("cutoff",)),))
    times = [f"MAX({_event_time(source)})" for source in shape.sources]
    newest = times[0] if len(times) == 1 else f"GREATEST({', '.join(times)})"
    return replace(
        shape,
        aggregates=(
            *shape.aggregates,
            ("_last_at", f"TIMESTAMP_MILLIS(UNIX_MILLIS({newest}))"),
            ("_cutoff", f"MAX({expiry.tag}.cutoff)"),
        ),
        outputs=(*shape.outputs, (LAST_EVENT_AT, "_last_at")),
        expiry=expiry,
        # A key that has only expiries has no row.
        expired="_cutoff IS NOT NULL AND COALESCE(_last_at <= _cutoff, TRUE)",
    )


def _event_time(source: SourcePlan) -> str:
    """Return the time of an event: its order if that is a time, but at most its record's time, which the
    broker bounds.

    Otherwise a time far in the future would keep the row forever. LEAST ignores null.
    """
    newest = newest_of(source)
    if source.order is None or not source.order_is_time:
        return f"{newest}._timestamp"
    return f"LEAST({newest}._order, {newest}._timestamp)"


def newest_of(source: SourcePlan) -> str:
    """Return the union column that is compared to find the source's latest event."""
    return f"n_{source.name}"


def identified_of(source: SourcePlan) -> str:
    """Return the union column that is kept of each event of a source with unique_by."""
    return f"i_{source.name}"


def rank_of(source: SourcePlan) -> tuple[str, ...]:
    """Return the fields that decide which of a source's events is later.

    Places are comparable only within a topic. Between several topics, time decides first.
    """
    place = ("_topic", "_at") if source.several else ("_at",)
    if source.order is not None:
        return ("_order", *place)
    return ("_timestamp", *place) if source.several else place


def each_once(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
