"""[shell] Checks of a sink before it runs: its columns and variables, and the newest event that it takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hub.errors import CallerError, ConfigError, NotFound
from hub.log import up_to
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.topic_rows import TopicTables
from hub.record import Positions, Record
from hub.sinks.assembler import check_assembly
from hub.sinks.assembling.domain_event import event_schema
from hub.sinks.events import SinkEvent
from hub.sinks.selection import SinkSelection, sql_refused
from hub.sinks.sink import SinkParts
from hub.sinks.sinks_file import SinkEntry, filled
from hub.sinks.targets.addresses import check_address

_SAMPLED, _SILENT_S = 200, 15.0


def check(
    parts: SinkParts, name: str, entry: SinkEntry, environ: Mapping[str, str] = os.environ
) -> Sequence[str]:
    """Return the columns of a sink's rows, once its SQL, variables and target are found usable.

    Raises ConfigError, NotFound (HUB-1823), PeerError.
    """
    if entry.webhook is not None:
        filled(name, entry.webhook.secrets[0], environ)
        url = filled(name, entry.webhook.url, environ)
        if not parts.settings.sink_link_local:
            check_address(url)
    if entry.search is not None:
        if entry.search.authorization is not None:
            filled(name, entry.search.authorization, environ)
        url = filled(name, entry.search.url, environ)
        if not parts.settings.sink_link_local:
            check_address(url, kind="search")
    if entry.database is not None:
        filled(name, entry.database.url, environ)
    if entry.topic is not None and entry.topic.name not in parts.cluster.described([entry.topic.name]):
        raise ConfigError(
            f'topic "{entry.topic.name}" does not exist',
            hint="add it to topics.yaml and run hub topic apply",
            code="HUB-1823",
        )
    if entry.assemble is not None:
        check_assembly(parts.cluster, name, entry)
        schema = event_schema(entry.topic.name if entry.topic is not None else "", entry.assemble)
        return [each["name"] for each in schema["fields"]]
    selection = SinkSelection(entry, TopicTables(parts.cluster, parts.registry))
    try:
        return [each.name for each in selection.columns]
    except SqlError as error:
        raise sql_refused(error) from None
    finally:
        selection.close()


def newest_event(parts: SinkParts, entry: SinkEntry) -> SinkEvent:
    """Return the newest event among the last 200 records of each partition that the sink takes.

    Raises NotFound (HUB-1823) if it takes none of them, CallerError (HUB-1830) for a sink that assembles,
    ConfigError, PeerError.
    """
    if entry.assemble is not None:
        raise CallerError(
            "a sink with `assemble` makes an event of a whole transaction, not of one record",
            hint=f"hub sink validate checks it, and its events are in {entry.place}",
            code="HUB-1830",
        )
    cluster, source = parts.cluster, entry.source
    ends = cluster.end_offsets([source])
    begins = cluster.beginning_offsets([source])
    reader = cluster.reader()
    records: list[Record] = []
    try:
        reader.assign(Positions({place: max(begins.get(place), end - _SAMPLED) for place, end in ends}))
        for page in up_to(ends, reader, _SILENT_S):
            records += page
    finally:
        reader.close()
    selection = SinkSelection(entry, TopicTables(cluster, parts.registry))
    try:
        events = [each for each in selection.select(records).events if each.row is not None]
    except SqlError as error:
        raise sql_refused(error) from None
    finally:
        selection.close()
    if not events:
        raise NotFound(
            f'topic "{source}" has no record among its last {_SAMPLED} that the sink takes',
            hint="write one, or correct `where` in sinks.yaml",
            code="HUB-1823",
        )
    return max(events, key=lambda event: event.record.timestamp_ms)
