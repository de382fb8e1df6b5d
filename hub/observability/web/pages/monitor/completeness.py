"""[core] Page of completeness: a heat map of topics × time ranges, worst topics first, and details of one
cell.

The counts come as values (``MinuteGrid``) from hub.completeness.minutes. A cell covers audited records;
without an audit it is unknown, never empty. Topics are sorted and counted by their overall state, and only
the rows of one page get cells, so a page costs the same with 10,000 topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from hub.errors import CallerError, NotFound, did_you_mean
from hub.observability.format import count
from hub.observability.web.layout import Pager, paged
from hub.observability.web.pages.monitor.completeness_counts import (
    STATES,
    CellState,
    ComparedSide,
    MinuteGrid,
    MinuteRange,
    joined,
    state_of,
)
from hub.observability.web.pages.monitor.completeness_times import (
    _LATEST_MS,
    RANGES,
    at_of,
    fitting,
    minute,
    until_of,
)

PAGE = 25
MOST_DIFFERING = 60
_MOST_COMMANDS = 5
_TROUBLE = STATES[:4]
ORDERS = ("worst", "tree")


_RANK = {state: rank for rank, state in enumerate(CellState)}


@dataclass(frozen=True, slots=True)
class TopicCountsRow:
    """Overall state of a topic."""

    topic: str
    state: str
    cause: str
    audited_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CountedTopics:
    """All counted topics, worst first. ``error``: why they are not updated. ``read`` False: not read yet."""

    topics: Sequence[TopicCountsRow] = ()
    error: str | None = None
    read: bool = True
    minutes: Callable[[str], MinuteGrid | None] = lambda _topic: None


@dataclass(frozen=True, slots=True)
class GridFilter:
    """Parameters of the address. ``topics``: part of a name, or a pattern with ``*`` and ``?`` for the
    whole name."""

    topics: str = ""
    state: tuple[str, ...] = ()
    range: str = "1h"
    until: str = ""
    order: str = "worst"

    @property
    def is_narrow(self) -> bool:
        return bool(self.topics or self.state)


@dataclass(frozen=True, slots=True)
class CompletenessCell:
    """A cell of the map. ``records`` None: unknown. ``why``: the reason as text, may be empty."""

    at_ms: int
    state: CellState
    records: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class GridRow:
    """A row of the map: one topic.

    ``branch``: its first label; ``label``: the rest. ``elsewhere_ms``: the newest trouble outside the range,
    and ``elsewhere_until`` the end of a map that shows it, as in an address ("" if no map does). ``said``:
    trouble without a time, such as that of a store's rows.
    """

    topic: str
    branch: str
    label: str
    state: str
    cause: str
    cells: tuple[CompletenessCell, ...]
    elsewhere_ms: int | None = None
    elsewhere_until: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class SelectedCell:
    """Details of one cell: everything known of [at_ms, end_ms)."""

    topic: str
    at_ms: int
    end_ms: int
    state: CellState
    why: str
    records: int | None
    stretch: MinuteRange
    sides: tuple[ComparedSide, ...]
    stores: tuple[ComparedSide, ...]
    unplaced: int
    audited_at_ms: int | None
    commands: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CompletenessPage:
    """Values of the page. ``counts``: (state, topics) without the filter on states. ``rows``: by branch,
    worst topic first."""

    filter: GridFilter
    read: bool
    error: str | None
    since_ms: int
    until_ms: int
    step_ms: int
    columns: tuple[int, ...]
    rows: tuple[GridRow, ...]
    differing: tuple[tuple[str, CompletenessCell], ...]
    counts: tuple[tuple[str, int], ...]
    total: int
    of: int
    pager: Pager
    older: str
    newer: str
    chosen: SelectedCell | None


def completeness_page(
    known: CountedTopics,
    names: Iterable[str],
    wanted: GridFilter,
    now_ms: int,
    number: int = 1,
    topic: str = "",
    at: str = "",
) -> CompletenessPage:
    """Return the page with that number.

    ``names``: all topics. ``topic`` and ``at`` (epoch ms or ISO 8601): the selected cell. Raises CallerError,
    NotFound.
    """
    checked(wanted)
    step_ms, many = RANGES[wanted.range]
    last_ms = until_of(wanted.until, now_ms)
    until_ms = -(-last_ms // step_ms) * step_ms
    columns = tuple(until_ms - step_ms * back for back in range(many, 0, -1))
    everything = [*known.topics, *_never(known.topics, names)]
    anyhow, fit = _wanted_rows(everything, wanted)
    pager = paged(len(fit), number, PAGE)
    shown = by_branch(fit[pager.first : pager.last])
    rows = tuple(row_of(each, known.minutes(each.topic), columns, step_ms) for each in shown)
    counts = Counter(each.state for each in anyhow)
    chosen = None
    if topic:
        at_ms = (at_of(at) if at else last_ms - 1) // step_ms * step_ms
        chosen = chosen_of(_of_topic(everything, topic), known.minutes(topic), at_ms, step_ms)
    span = step_ms * many
    return CompletenessPage(
        wanted,
        known.read,
        known.error,
        columns[0],
        until_ms,
        step_ms,
        columns,
        rows,
        _trouble_in(rows),
        tuple((state, counts[state]) for state in STATES if counts[state]),
        len(fit),
        len(everything),
        pager,
        minute(until_ms - span) if until_ms > span else "",
        minute(min(until_ms + span, now_ms)) if until_ms < now_ms else "",
        chosen,
    )


def _wanted_rows(
    rows: Sequence[TopicCountsRow], wanted: GridFilter
) -> tuple[list[TopicCountsRow], list[TopicCountsRow]]:
    """Return the rows of the wanted topics in any state, and those in a wanted state, in the wanted order."""
    fits = fitting(wanted.topics)
    anyhow = [each for each in rows if fits(each.topic)]
    fit = [each for each in anyhow if not wanted.state or each.state in wanted.state]
    if wanted.order == "tree":
        fit.sort(key=lambda each: each.topic.split("."))
    return anyhow, fit


def _trouble_in(rows: Iterable[GridRow]) -> tuple[tuple[str, CompletenessCell], ...]:
    """Return the cells in trouble with their topics, the worst and newest first."""
    found = [
        (row.topic, cell)
        for row in rows
        for cell in row.cells
        if cell.state in (CellState.GAP, CellState.DUPLICATES)
    ]
    found.sort(key=lambda each: (_RANK[each[1].state], -each[1].at_ms, each[0]))
    return tuple(found[:MOST_DIFFERING])


def _of_topic(rows: Sequence[TopicCountsRow], topic: str) -> TopicCountsRow:
    """Return the row of a topic. Raises NotFound with the nearest name."""
    audited = next((each for each in rows if each.topic == topic), None)
    if audited is None:
        raise NotFound(
            f'topic "{topic[:249]}" is neither in Kafka nor in the ledger',
            hint=did_you_mean(topic, [each.topic for each in rows[:2_000]], "/completeness shows all"),
        )
    return audited


def checked(wanted: GridFilter) -> None:
    """Check the filter's values. Raises CallerError."""
    for each in wanted.state:
        if each not in STATES:
            raise CallerError(f'"{each[:30]}" is not a state', hint=f"one of: {', '.join(STATES)}")
    if wanted.range not in RANGES:
        raise CallerError(f'"{wanted.range[:30]}" is not a range', hint=f"one of: {', '.join(RANGES)}")
    if wanted.order not in ORDERS:
        raise CallerError(f'"{wanted.order[:30]}" is not an order', hint=f"one of: {', '.join(ORDERS)}")


def _never(topics: Sequence[TopicCountsRow], names: Iterable[str]) -> Iterator[TopicCountsRow]:
    known = {each.topic for each in topics}
    for name in sorted(names):
        if name not in known:
            yield TopicCountsRow(name, "NEVER", "never audited: hub completeness run " + name)


def by_branch(topics: Sequence[TopicCountsRow]) -> list[TopicCountsRow]:
    """Group topics with the same first label, in the order of the first of each group."""
    branches: dict[str, list[TopicCountsRow]] = {}
    for each in topics:
        branches.setdefault(each.topic.partition(".")[0], []).append(each)
    return [each for those in branches.values() for each in those]


def row_of(audited: TopicCountsRow, heat: MinuteGrid | None, columns: Sequence[int], step_ms: int) -> GridRow:
    """Return a topic's row. ``heat`` None: nothing is known of the topic."""
    branch, _, rest = audited.topic.partition(".")
    by_column: dict[int, list[MinuteRange]] = {}
    elsewhere = None
    if heat is not None:
        end_ms = columns[-1] + step_ms
        for at_ms, stretch in heat.minutes.items():
            if columns[0] <= at_ms < end_ms:
                by_column.setdefault(at_ms // step_ms * step_ms, []).append(stretch)
            elif state_of(stretch)[0] in (CellState.GAP, CellState.DUPLICATES):
                elsewhere = max(at_ms, elsewhere or 0)
    cells = tuple(cell_of(heat, by_column.get(at_ms, ()), at_ms, step_ms) for at_ms in columns)
    has_trouble = any(each.state in (CellState.GAP, CellState.DUPLICATES) for each in cells)
    timeless = audited.state in _TROUBLE and not has_trouble and elsewhere is None
    return GridRow(
        audited.topic,
        branch,
        rest or branch,
        audited.state,
        audited.cause,
        cells,
        None if has_trouble else elsewhere,
        "" if elsewhere is None or elsewhere + step_ms > _LATEST_MS else minute(elsewhere + step_ms),
        audited.cause if timeless else "",
    )


def cell_of(
    heat: MinuteGrid | None, those: Sequence[MinuteRange], at_ms: int, step_ms: int
) -> CompletenessCell:
    """Return a cell from the minutes that it covers."""
    if heat is None:
        return CompletenessCell(at_ms, CellState.UNKNOWN, None, "never audited")
    if those:
        whole = joined(those)
        state, why = state_of(whole)
        return CompletenessCell(at_ms, state, whole.records, why)
    if heat.gaps:
        why = f"{count(heat.gaps)} offsets are not audited, and any of them may be of this time"
        return CompletenessCell(at_ms, CellState.UNKNOWN, None, why)
    if at_ms + step_ms > heat.until_ms:
        return CompletenessCell(at_ms, CellState.UNKNOWN, None, "not audited yet")
    if heat.since_ms is not None and at_ms < heat.since_ms:
        return CompletenessCell(at_ms, CellState.UNKNOWN, None, "from before the audited range")
    return CompletenessCell(at_ms, CellState.EMPTY, 0)


def chosen_of(audited: TopicCountsRow, heat: MinuteGrid | None, at_ms: int, step_ms: int) -> SelectedCell:
    """Return a cell with its counts at every tier, and the commands that list its records or count again."""
    those = {at: each for at, each in heat.minutes.items() if at_ms <= at < at_ms + step_ms} if heat else {}
    cell = cell_of(heat, list(those.values()), at_ms, step_ms)
    whole = joined(list(those.values()))
    wrong = [
        at
        for at in sorted(those)
        if state_of(those[at])[0] in (CellState.GAP, CellState.DUPLICATES)
        or any(side.state == "UNKNOWN" for side in those[at].sides)
    ]
    commands = [
        (f"Which records, {minute(at)}", f"hub completeness missing {audited.topic} {minute(at)}")
        for at in wrong[:_MOST_COMMANDS]
    ]
    commands.append(("Count new records, and compare", f"hub completeness run {audited.topic}"))
    return SelectedCell(
        audited.topic,
        at_ms,
        at_ms + step_ms,
        cell.state,
        cell.why,
        cell.records,
        whole,
        whole.sides,
        heat.stores if heat else (),
        heat.unplaced if heat else 0,
        audited.audited_at_ms,
        tuple(commands),
    )
