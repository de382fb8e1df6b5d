"""[shell] All records of a topic as rows, while they are taken: its archive, then its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hub.caller import sees_schema
from hub.materializers.queries.databases import EventTable
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.running import RunningQuery
from hub.materializers.queries.topic_columns import VALUE
from hub.materializers.queries.topic_rows import ScannedRange, TopicTables, cells_of, wanted_kinds
from hub.materializers.queries.whole_topic import (
    ArchivedRecord,
    ArchivedTopic,
    WholeRead,
    WholeSpan,
    place_of,
    spans_of,
)
from hub.record import Record, TopicPartition
from hub.schema_registry.codecs.unreadable import UNREADABLE

# Of the rows, which are in a temporary file.
MOST_BYTES = 2_000_000_000
Row = list[Any]


def read_whole(
    topics: TopicTables,
    table: EventTable,
    wanted: frozenset[str],
    running: RunningQuery,
    request: WholeRead,
) -> tuple[EventTable, list[ScannedRange]]:
    """Return the table, whose rows are read while they are taken, and its ranges, which count them.

    ``wanted``: as in ``TopicTables.read``. Raises SqlError, PeerError, Conflict (HUB-1811).
    """
    topic = table.name
    description = topics.cluster.described([topic])[topic]
    # First where the log begins: the archive has what the log loses after that.
    begins, ends = topics.cluster.beginning_offsets([topic]), topics.cluster.end_offsets([topic])
    archive = None if topics.archive is None else topics.archive.open(topic, description.topic_id)
    spans = spans_of(topic, begins, ends, archive, request.before)
    ranges = {
        place: ScannedRange(
            *(topic, place.partition, 0, span.end),
            archived_to=None if archive is None else span.archived_to,
            missing=span.missing,
            dead_letters=0 if archive is None else archive.dead_letters,
        )
        for place, span in spans.items()
    }
    rows = _WholeRows(topics, table, wanted, running, request, archive, spans, ranges)
    return replace(table, rows=iter(rows), placed=True), [ranges[place] for place in sorted(ranges)]


@dataclass
class _WholeRows:
    """Rows of one read, each with the number of its place before it."""

    topics: TopicTables
    table: EventTable
    wanted: frozenset[str]
    running: RunningQuery
    request: WholeRead
    archive: ArchivedTopic | None
    spans: Mapping[TopicPartition, WholeSpan]
    ranges: Mapping[TopicPartition, ScannedRange]
    weight: int = 0

    def __iter__(self) -> Iterator[Row]:
        row_of = self.topics.row_maker(self.table, self.wanted)
        if self.archive is not None:
            yield from self._archived(self.archive, row_of)
        of_log = {
            place: ScannedRange(place.topic, place.partition, span.log_from, span.end)
            for place, span in self.spans.items()
        }
        for record in self.topics.records(self.table.name, of_log, self.running):
            if self.request.admits(record.timestamp_ms):
                yield from self._placed(record, row_of(record))

    def _archived(self, archive: ArchivedTopic, row_of: Callable[[Record], Row | None]) -> Iterator[Row]:
        shown = self._archived_maker(row_of)
        names = frozenset(wanted_kinds(self.table, self.wanted)) if self.table.shape.is_open else None
        kinds = {**self.table.columns, **self.table.hidden}
        for page in archive.read(kinds, names, self.request):
            if self.running.over:
                raise self.running.ended()
            for each in page:
                record = each.record
                span = self.spans.get(record.topic_partition)
                if span is None or record.offset >= span.archived_to:
                    continue
                if self.request.admits(record.timestamp_ms):
                    yield from self._placed(record, shown(each))

    def _placed(self, record: Record, row: Row | None) -> Iterator[Row]:
        """Count a record, and yield its row if the caller sees it. Raises SqlError for too many bytes."""
        scanned = self.ranges[record.topic_partition]
        scanned.events += 1
        scanned.unreadable += row is None
        self.weight += 100 + sum(len(each) for each in row or () if isinstance(each, str | bytes))
        if self.weight > MOST_BYTES:
            raise SqlError(
                f'topic "{self.table.name}": its rows are more than {MOST_BYTES // 1_000_000} MB',
                hint="read a part of it: fewer columns, or WHERE _timestamp >= …",
                code="HUB-1452",
            )
        if row:
            yield [place_of(record), *row]

    def _archived_maker(
        self, row_of: Callable[[Record], Row | None]
    ) -> Callable[[ArchivedRecord], Row | None]:
        """Return the function from a record of the archive to its row; its results as those of ``row_of``."""
        table, kinds = self.table, wanted_kinds(self.table, self.wanted)
        names = [*table.columns, *table.hidden]
        visible: dict[int, bool] = {}

        def row(archived: ArchivedRecord) -> Row | None:
            if not archived.decoded:
                return row_of(archived.record)
            schema_id = archived.schema_id
            if schema_id is not None:
                if VALUE in kinds:
                    raise SqlError(
                        f'topic "{table.name}": its archive has the fields of events, and no _value',
                        hint="name the fields, or read the log alone: without events=all and AS OF",
                        code="HUB-1494",
                    )
                if schema_id not in visible:
                    visible[schema_id] = sees_schema(lambda: self.topics.schemas.subjects_of(schema_id))
                if not visible[schema_id]:
                    return None
            try:
                if not table.shape.admits(archived.value):
                    return []
                return cells_of(table, kinds, names, archived.record, archived.value, None)
            except UNREADABLE:
                return None

        return row
