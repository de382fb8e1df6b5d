"""[shell] The applier: changelogs into a store, in bounded steps.

A step polls, keeps the newest row of each key *before* decoding, and applies rows and positions in one transaction.
It starts from the positions in the store and nowhere else. Progress records are held back until the store's changelog
positions cover what they speak of; then the source positions they name are covered, in the same transaction.

A changelog record that cannot be decoded stops its own view, visibly, and no other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from hub.config import Settings
from hub.errors import HubError, HubFault, NotFound, PeerError
from hub.kafka import KafkaCluster
from hub.log import Cluster, Reader
from hub.materializers.progress import PROGRESS_TOPIC, Progress, progress_of
from hub.materializers.stores.sql import Change, Store, ViewBatch
from hub.materializers.view import CHANGELOG_PREFIX, View, load_view, view_files
from hub.record import Positions, Record, TopicPartition
from hub.runtime import Backoff
from hub.schema_registry.client import RegisteredSchema, RegistryClient
from hub.schema_registry.codec import Undecodable, decode, parsed

log = logging.getLogger(__name__)

MOST_RECORDS = 5_000
_POLL_S = 0.25
_RESCAN_S = 2.0
_PUBLISH_S = 1.0
# hub.version is generation · 2⁴⁰ + events folded into the key.
GENERATION_SHIFT = 40
_PROGRESS = TopicPartition(PROGRESS_TOPIC, 0)


class Log(Cluster, Protocol):
    """A cluster that opens readers."""

    def reader(self) -> Reader: ...

    def publish_group(self, group: str, positions: Positions) -> None: ...


class Schemas(Protocol):
    """What the applier asks of the registry."""

    def schema(self, schema_id: int) -> str: ...

    def latest(self, subject: str) -> RegisteredSchema: ...


@dataclass
class _Followed:
    """A view whose changelog is applied: where it is, and what its progress said that is not covered yet."""

    view: View
    position: Positions
    topic_id: str
    schema_ids: set[int]
    waiting: list[Progress] = field(default_factory=list)
    stopped: str | None = None


class Applier:
    """One reader, one store, all views. ``step`` is the whole of its work."""

    def __init__(self, log_: Log, schemas: Schemas, store: Store) -> None:
        self.log = log_
        self.schemas = schemas
        self.store = store
        self.followed: dict[str, _Followed] = {}
        self.reader: Reader | None = None
        self._parsed: dict[int, Any] = {}

    def follow(self, views: Sequence[View]) -> None:
        """Follow exactly these views, as far as their changelogs exist; the others are picked up by a later call."""
        topics = self.log.topics()
        changed = False
        for name in [name for name in self.followed if name not in {view.name for view in views}]:
            del self.followed[name]
            changed = True
        for view in views:
            known = self.followed.get(view.name)
            if view.changelog in topics and (known is None or known.view != view):
                found = self._begin(view, topics[view.changelog].topic_id)
                if found is not None:
                    self.followed[view.name] = found
                    changed = True
        if self.reader is None or changed:
            self._assign(PROGRESS_TOPIC in topics)

    def _begin(self, view: View, topic_id: str) -> _Followed | None:
        """Where the store is with a view; its table made or extended. None while its schema is not registered."""
        try:
            latest = self.schemas.latest(f"{view.changelog}-value")
        except NotFound:
            return None
        fresh = self._fit(view, topic_id, latest)
        start = self.log.beginning_offsets([view.changelog])
        at = start if fresh else start.advanced(self.store.positions(view.name, "changelog"))
        log.info("view %s: applied from %s%s", view.name, at, " (table made anew)" if fresh else "")
        return _Followed(view, at, topic_id, {latest.id})

    def _fit(self, view: View, topic_id: str, latest: RegisteredSchema) -> bool:
        """Make the table fit the changelog's latest schema. True when it must be filled from the start."""
        schema = orjson.loads(latest.schema)
        columns = {each["name"] for each in schema["fields"]}
        # A file may name an index whose field the engine has not published yet.
        indexes = [index for index in view.indexes if index in columns]
        return self.store.ensure_view(view.name, schema, indexes, topic_id)

    def _assign(self, with_progress: bool) -> None:
        at = {
            tp: offset for each in self.followed.values() if not each.stopped for tp, offset in each.position
        }
        if with_progress:
            # One small compacted partition: read from its start whenever the set of views changes.
            at[_PROGRESS] = self.log.beginning_offsets([PROGRESS_TOPIC]).get(_PROGRESS)
        if self.reader is None:
            self.reader = self.log.reader()
        self.reader.assign(Positions(at))

    def step(self, timeout_s: float = _POLL_S) -> int:
        """Apply what there is, at most MOST_RECORDS. Returns how many records were read; 0 after ``timeout_s``."""
        if self.reader is None:
            return 0
        records = self.reader.poll(MOST_RECORDS, timeout_s)
        reached = self.reader.position()
        by_view: dict[str, list[Record]] = {}
        told: dict[str, Any] = {}
        for record in records:
            if record.topic == PROGRESS_TOPIC:
                self._hear(record, told)
            else:
                by_view.setdefault(record.topic.removeprefix(CHANGELOG_PREFIX), []).append(record)
        batches = []
        for name, followed in self.followed.items():
            if followed.stopped is None:
                batch = self._batch(followed, by_view.get(name, ()), reached, told)
                if batch is not None:
                    batches.append(batch)
        if batches or told:
            self.store.apply(batches, told)
        for batch in batches:
            self.followed[batch.view].position = batch.changelog
        return len(records)

    def _hear(self, record: Record, told: dict[str, Any]) -> None:
        """A progress or state record: shown as it is; progress also waits to be covered."""
        if record.key is None:
            return
        told[record.key.decode(errors="replace")] = (
            orjson.loads(record.value) if record.value is not None else None
        )
        name = record.key.partition(b":")[2].decode(errors="replace")
        followed = self.followed.get(name)
        progress = progress_of(record, f"{CHANGELOG_PREFIX}{name}")
        if followed is not None and progress is not None:
            followed.waiting = [*followed.waiting[-63:], progress]

    def _batch(
        self, followed: _Followed, records: Sequence[Record], reached: Positions, told: dict[str, Any]
    ) -> ViewBatch | None:
        """One view's part of a step; None when nothing changes."""
        changelog = followed.position.advanced(reached.of_topics([followed.view.changelog]))
        try:
            changes = self._changes(followed, records)
        except HubFault as fault:
            followed.stopped = fault.message
            log.error("view %s stops: %s", followed.view.name, fault.message)
            told[f"state:{followed.view.name}"] = {
                "view": followed.view.name,
                "state": "failed",
                "reason": fault.message,
                "since_ms": time.time_ns() // 1_000_000,
                "doc": followed.view.doc,
                "owner": followed.view.owner,
                "sources": {name: source.topic for name, source in followed.view.sources.items()},
            }
            return None
        covered = [each for each in followed.waiting if changelog.covers(each.changelog)]
        followed.waiting = [each for each in followed.waiting if each not in covered]
        if not changes and not covered and changelog == followed.position:
            return None
        sources = Positions()
        for progress in covered:
            sources = sources.advanced(progress.sources)
        # A generation that went live has every key: what is still of an earlier one is gone from the view.
        live = [each.generation for each in covered if each.mode == "live"]
        return ViewBatch(
            followed.view.name, changes, changelog, sources, max(live, default=0) << GENERATION_SHIFT
        )

    def _changes(self, followed: _Followed, records: Sequence[Record]) -> list[Change]:
        """The newest row of each key, decoded. Raises HubFault naming topic, partition and offset."""
        newest: dict[bytes, tuple[int, Record]] = {}
        for record in records:
            version = _version(record)
            key = record.key or b""
            if key not in newest or newest[key][0] < version:
                newest[key] = (version, record)
        self._know_schemas(followed, [record for _, record in newest.values()])
        return [
            Change(key.decode(), version, record.partition, record.offset, self._row(record))
            for key, (version, record) in newest.items()
        ]

    def _know_schemas(self, followed: _Followed, records: Sequence[Record]) -> None:
        """Before rows of a schema that the table was not made for are taken: new columns first."""
        seen = {int.from_bytes(record.value[1:5], "big") for record in records if record.value is not None}
        if seen <= followed.schema_ids:
            return
        view = followed.view
        if self._fit(view, followed.topic_id, self.schemas.latest(f"{view.changelog}-value")):
            raise PeerError(
                f"view {view.name}: a column changed its type; its table is filled anew", code="HUB-3051"
            )
        followed.schema_ids |= seen

    def _row(self, record: Record) -> Mapping[str, Any] | None:
        if record.value is None:
            return None
        try:
            _, row = decode(record.value, self._schema)
        except Undecodable as error:
            raise _unreadable(record, error.message) from None
        if not isinstance(row, dict):
            raise _unreadable(record, "not a row")
        return row

    def _schema(self, schema_id: int) -> Any:
        if schema_id not in self._parsed:
            self._parsed[schema_id] = parsed(orjson.loads(self.schemas.schema(schema_id)))
        return self._parsed[schema_id]

    def publish(self) -> None:
        """Show every view's position as a consumer group, for other tools."""
        for name, followed in self.followed.items():
            self.log.publish_group(f"hub.store.{name}", followed.position)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None


def _version(record: Record) -> int:
    header = record.header("hub.version")
    if header is None or not header.isdigit():
        raise _unreadable(record, "it has no header hub.version")
    return int(header)


def _unreadable(record: Record, why: str) -> HubFault:
    return HubFault(
        f'topic "{record.topic}" partition {record.partition} offset {record.offset}: no changelog row: {why}',
        hint="who wrote there? Delete the changelog topic and the view's checkpoint to build the view anew",
        code="HUB-5020",
    )


def run(settings: Settings, stop: threading.Event) -> None:
    """Apply every view of the project until ``stop``; whatever is away is waited for, and said in the log."""
    store = Store(settings.store)
    cluster = KafkaCluster(settings.bootstrap, settings.kafka_timeout_s)
    applier = Applier(cluster, RegistryClient(settings.registry), store)
    backoff = Backoff(first_s=0.2, most_s=5.0)
    rescan_at = publish_at = 0.0
    try:
        while not stop.is_set():
            try:
                now = time.monotonic()
                if now >= rescan_at:
                    rescan_at = now + _RESCAN_S
                    applier.follow(_views(settings))
                applier.step()
                if now >= publish_at:
                    publish_at = now + _PUBLISH_S
                    applier.publish()
                backoff.reset()
            except HubError as error:
                log.warning("%s: tried again", error.message)
                applier.close()  # the next step starts from the store's positions
                applier.followed.clear()
                rescan_at = 0.0
                stop.wait(backoff.next_s())
    finally:
        applier.close()
        store.close()


def _views(settings: Settings) -> list[View]:
    """The project's views; a file that does not load is the materializer's to complain of."""
    views = []
    for path in view_files(settings.project):
        try:
            views.append(load_view(path))
        except HubError as error:
            log.debug("%s", error.message)
    return views
