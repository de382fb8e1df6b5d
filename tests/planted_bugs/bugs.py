"""Planted bugs: edits of one place of the product's source, made while a process imports it. No file is
changed.

The fault suite must find each of them (``bench/soak.py --bugs``). A unit test keeps the table true: each text
that is replaced stands exactly once in its module, each kind of fault and each checker that a bug names
exists.

Not in the table, because a second defense hides one edit: a registry writer that does not read to the end
(``_be_kept`` finds that its id is taken), a checkpoint that is not looked at before it is used (Spark's own
words are judged too), and
``>=`` for ``>`` where versions are compared (equal versions are equal rows).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Bug:
    """``before`` is replaced by ``after`` in a module's source.

    ``faults``: kinds of faults that show it, by a part of their names. ``found_by``: the functions and
    classes of tests/fault_suite that find it.
    """

    module: str
    before: str
    after: str
    faults: tuple[str, ...]
    found_by: tuple[str, ...]


_KILLS = ("kill -9 applier", "kill -9 server", "kill -9 materializer")
_MIRROR = ("kill -9 mirror", "SIGSTOP mirror", "away Kafka: cut", "away Kafka: EndTxn")
_REGISTRY = ("kill -9 server", "SIGSTOP server")
_HTTP = ("HTTP: cut", "HTTP: half open")
_DEAD_KAFKA = ("kill -9 a home broker",)
"""Records in flight have no outcome, and those sent meanwhile are given up: a broker that only stands still
writes them later."""
_SILENT = ("for longer than its limit",)

_SQL = "hub.materializers.stores.sql_store"
_TABLES = "hub.materializers.stores.sql.tables"
_QUERIES = "hub.materializers.stores.sql.queries"
_CATALOG = "hub.materializers.stores.sql.catalog"
_BATCHES = "hub.materializers.engine.batch_reports"
_SHARD = "hub.replication.engine"
_GATEWAY = "hub.topics.gateway.gateway"
_REPEATED = "hub.topics.gateway.repeated_requests"
_PUSH = "hub.materializers.serving.subscriptions"
_NODE = "hub.schema_registry.server.node"
_STATES = "hub.materializers.progress.view_states"

_STALE = ("MaterializerProbe", "TokenReader")
_ROWS = ("check_views",)

BUGS: dict[str, Bug] = {
    # ---- stores and applier
    "a store takes no newer rows": Bug(
        "hub.materializers.stores.sql.names",
        "WHERE excluded.{quote(newer)} > {quote(table.name)}",
        "WHERE excluded.{quote(newer)} < {quote(table.name)}",
        _KILLS,
        (*_STALE, *_ROWS),
    ),
    "a store keeps deleted rows": Bug(
        _TABLES,
        'values: dict[str, Any] | None = None\n        if not found["_deleted"]:',
        "values: dict[str, Any] | None = None\n        if True:",
        _KILLS,
        ("Subscriber", *_ROWS),
    ),
    "a store takes a delete for a row of nulls": Bug(
        _TABLES,
        "change.offset, sources, deleted, now_ms)",
        "change.offset, sources, False, now_ms)",
        _KILLS,
        _ROWS,
    ),
    "Postgres leaves the last row of many out": Bug(
        _SQL,
        "if self._postgres and len(rows) >= _COPY_FROM:\n            copy_and_merge(connection, "
        "view_table.table, rows, meanwhile)",
        "if self._postgres and len(rows) > 1:\n            copy_and_merge(connection, view_table.table, "
        "rows[:-1], meanwhile)",
        ("kill -9 Postgres", "Postgres: cut"),
        _ROWS,
    ),
    "a store's positions run ahead of its rows": Bug(
        _CATALOG,
        '"next_offset": offset,\n            }\n            for kind, positions in reached.items()',
        '"next_offset": offset + 5 * (kind == "changelog"),\n            }\n            for kind, '
        "positions in reached.items()",
        _KILLS,
        ("Subscriber", *_ROWS),
    ),
    "source positions are told one batch early": Bug(
        _SQL,
        '"source": batch.sources}',
        '"source": Positions({tp: offset + 50 for tp, offset in batch.sources})}',
        _KILLS,
        _STALE,
    ),
    "the last row of a transaction is left out": Bug(
        _SQL,
        "rows = [view_table.values(key, change, now_ms) for key, change in newest.items()]",
        "rows = [view_table.values(key, change, now_ms) for key, change in newest.items()][: "
        "max(1, len(newest) - 1)]",
        _KILLS,
        _ROWS,
    ),
    "the applier goes on behind its position": Bug(
        "hub.materializers.applying.view_tables",
        'at = start if fresh else start.advanced(self.store.positions(view.table, "changelog"))',
        "at = self.log.end_offsets([view.changelog]) if not fresh else start",
        ("kill -9 applier",),
        _ROWS,
    ),
    "the applier keeps the oldest of a key's rows": Bug(
        "hub.materializers.applying.newest_rows",
        "newest[record.key][0] < version:",
        "newest[record.key][0] > version:",
        ("kill -9 applier", "SIGSTOP applier", "applier gets a sixth"),
        (*_STALE, *_ROWS),
    ),
    # ---- materializer
    "progress covers what is not read yet": Bug(
        _BATCHES,
        "batch.sources,\n            Positions(),\n            batch.input_rows,",
        "Positions({tp: offset + 40 for tp, offset in batch.sources}),\n            Positions(),\n          "
        "  batch.input_rows,",
        _KILLS,
        _STALE,
    ),
    "a batch that was only begun is told of as done": Bug(
        "hub.materializers.spark.checkpoints.committed_batches",
        'for path in (checkpoint / "commits").glob("*") if path.name.isdecimal()]\n    if not commits:',
        'for path in (checkpoint / "offsets").glob("*") if path.name.isdecimal()]\n    if not commits:',
        ("kill -9 materializer", "kill -9 spark"),
        _STALE,
    ),
    "a view built anew counts its versions from nothing": Bug(
        "hub.materializers.engine.plans.generations",
        "return version.number",
        "return 0",
        ("a checkpoint is gone",),
        ("KeyReader",),
    ),
    "a view built anew begins at the end of its topics": Bug(
        "hub.materializers.spark.kafka_source",
        '.option("startingOffsets", "earliest")',
        '.option("startingOffsets", "latest")',
        ("a checkpoint is gone",),
        _ROWS,
    ),
    "Spark reads what was rolled back": Bug(
        "hub.materializers.spark.kafka_source",
        '"kafka.isolation.level": "read_committed"',
        '"kafka.isolation.level": "read_uncommitted"',
        _KILLS,
        _ROWS,
    ),
    "an event that cannot be read is a row of nulls": Bug(
        "hub.materializers.spark.sql_rows",
        'F.col(WHY).isNull() & ~F.col("_deleted")).drop(',
        '~F.col("_deleted")).drop(',
        ("records that no schema can read",),
        _ROWS,
    ),
    # ---- dead-letter queues
    "a SQL view's dead events are dropped": Bug(
        "hub.materializers.spark.sql_stream",
        "if counts or late_events:",
        "if late_events:",
        ("records that no schema can read",),
        ("check_dead_letters",),
    ),
    "a dead-letter record names another place": Bug(
        "hub.materializers.spark.dataframes",
        'f"{BAD}._{name}") for name in ("topic", "partition", "offset")]',
        'f"{BAD}._{name}") for name in ("topic", "partition")] + [_header("hub.dlq.offset", '
        'f"{BAD}._offset + 1")]',
        ("records that no schema can read",),
        ("check_dead_letters",),
    ),
    # ---- reads and pushes
    "tokens are not waited for": Bug(
        "hub.materializers.serving.fast_path",
        "return all(positions.get(tp, -1) >= offset for tp, offset in token) or "
        "row_covers(row.sources, token)",
        "return True",
        ("SIGSTOP applier", "kill -9 materializer"),
        _STALE,
    ),
    "a token is compared one too low": Bug(
        "hub.materializers.serving.fast_path",
        "positions.get(tp, -1) >= offset for tp",
        "positions.get(tp, -1) >= offset - 1 for tp",
        ("SIGSTOP applier", "away Kafka: cut"),
        _STALE,
    ),
    "a row covers what came after it": Bug(
        "hub.materializers.serving.read_your_writes",
        '(origin["topic"], origin["partition"]): origin["offset"] + 1',
        '(origin["topic"], origin["partition"]): origin["offset"] + 100',
        ("SIGSTOP applier",),
        _STALE,
    ),
    "a token that is waited for in vain gets what there is": Bug(
        "hub.materializers.serving.token_waits",
        "if remaining <= 0:\n            raise _behind(view, covered, token)",
        "if remaining <= 0:\n            return row, covered",
        ("SIGSTOP applier", "kill -9 materializer"),
        _STALE,
    ),
    "a page ends with the next page's first row": Bug(
        _QUERIES,
        "where.append(table.c.key > self.key(after))",
        "where.append(table.c.key >= self.key(after))",
        _KILLS,
        ("ListReader",),
    ),
    "subscribers are not told of deletes": Bug(
        _PUSH,
        'name: Name = "delete" if',
        'if row.values is None:\n                    continue\n                name: Name = "delete" if',
        _KILLS,
        ("Subscriber", *_ROWS),
    ),
    "changes begin behind the position": Bug(
        _QUERIES,
        "table.c._offset >= since.get(tp),",
        "table.c._offset > since.get(tp),",
        _KILLS,
        ("Subscriber", *_ROWS),
    ),
    "a subscriber resumes behind the last page": Bug(
        _PUSH,
        "start = place or SubscriberPosition(",
        "place = place and SubscriberPosition(place.incarnation, Positions({tp: at + 20 for tp, at in "
        "place.positions}), place.after, place.filters)\n            start = place or SubscriberPosition(",
        ("kill -9 server",),
        ("Subscriber", *_ROWS),
    ),
    "a subscriber that comes back misses what came meanwhile": Bug(
        _PUSH,
        "elif self.fresh:",
        "else:",
        ("kill -9 server",),
        ("Subscriber", *_ROWS),
    ),
    # ---- gateway
    "the gateway answers before Kafka does": Bug(
        _GATEWAY,
        "            sender.send(new, acknowledged)\n",
        "            acknowledged(TopicPartition(new.topic, 0), 0, None)\n            "
        "sender.send(new, lambda *_: None)\n",
        _HTTP,
        ("check_log",),
    ),
    "the gateway answers with the next offset": Bug(
        _GATEWAY,
        "line = written_line(cluster_id, place, offset, timestamp_ms, new, schema_id)",
        "line = written_line(cluster_id, place, offset + 1, timestamp_ms, new, schema_id)",
        _HTTP,
        ("check_log",),
    ),
    "the gateway takes silence for success": Bug(
        _GATEWAY,
        "self.admission.note_answer(time.monotonic())\n            if error is None:",
        "self.admission.note_answer(time.monotonic())\n            if error is None or "
        "isinstance(error, PeerError):",
        _DEAD_KAFKA,
        ("check_log",),
    ),
    "an idempotency key is not looked up": Bug(
        _REPEATED,
        "known = self._memory.find(topic, key, print_, now_s)",
        "known = None",
        ("HTTP: answers are lost",),
        ("check_log",),
    ),
    "idempotency keys are cut short": Bug(
        _GATEWAY,
        'key, print_ = request.idempotency_key, ""',
        'key, print_ = (request.idempotency_key or "")[:2] or None, ""',
        _HTTP,
        ("HttpWriter",),
    ),
    "the gateway forgets that an outcome is open": Bug(
        _REPEATED,
        "if unknown:\n                self._add",
        "if unknown and keep:\n                self._add",
        ("Produce held past its limit",),
        ("check_log",),
    ),
    # ---- mirror
    "a mirror resumes behind its checkpoint": Bug(
        f"{_SHARD}.resume",
        "each.committed = checkpoint\n",
        "from dataclasses import replace as _r\n        checkpoint = _r(checkpoint, "
        "source_next=checkpoint.source_next + 3)\n        each.committed = checkpoint\n",
        _MIRROR,
        ("check_mirror", "MirrorProbe"),
    ),
    "a mirror resumes before its checkpoint": Bug(
        f"{_SHARD}.resume",
        "each.committed = checkpoint\n",
        "from dataclasses import replace as _r\n        checkpoint = _r(checkpoint, source_next=max(0, "
        "checkpoint.source_next - 3))\n        each.committed = checkpoint\n",
        _MIRROR,
        ("check_mirror",),
    ),
    "a mirror believes its memory after a commit without an answer": Bug(
        f"{_SHARD}.resume",
        "if not self._resume(each, checkpoints.get(each.tp))]",
        "if not self._resume(each, each.committed or checkpoints.get(each.tp))]",
        ("away Kafka: EndTxn", "a view comes, changes and goes"),
        ("check_mirror",),
    ),
    "a mirror goes on where it failed": Bug(
        f"{_SHARD}.shard_state",
        "position = self.source_start if mark is None else mark.source_next",
        "position = self.source_start if mark is None else max(self.cursor.position, mark.source_next)",
        ("away Kafka: cut", "away Kafka: Produce", "kill -9 the away broker"),
        ("check_mirror",),
    ),
    "the offset map is one off": Bug(
        f"{_SHARD}.shard_state",
        "Run(run.source, base + run.target, run.count)",
        "Run(run.source, base + run.target + 1, run.count)",
        _MIRROR,
        ("check_mirror",),
    ),
    "the offset map is written one off": Bug(
        "hub.replication.maps.offset_map",
        "put_signed(run.target - target, encoded)",
        "put_signed(max(0, run.target - target - 1), encoded)",
        _MIRROR,
        ("check_mirror",),
    ),
    "a mirror's aborted transaction counts": Bug(
        f"{_SHARD}.target_transaction",
        "self._coordinator.end(self.producer, commit=True)",
        "self._coordinator.end(self.producer, commit=False)",
        _MIRROR,
        ("check_mirror", "MirrorProbe"),
    ),
    "a mirror carries what was rolled back": Bug(
        f"{_SHARD}.fetcher",
        "            floor,\n            part.aborted,\n",
        "            floor,\n            (),\n",
        _MIRROR,
        ("check_mirror",),
    ),
    # ---- registry
    "a schema gets another id in each subject": Bug(
        "hub.schema_registry.registry.decide_register",
        "same = context.by_identity.get(identity(stored))\n    if same:",
        "same = context.by_identity.get(identity(stored))\n    if same and requested_id is not None:",
        _REGISTRY,
        ("check_registry",),
    ),
    "a registry node answers for a write that failed": Bug(
        _NODE,
        "            self._writer = None\n            raise\n        self._be_same_log",
        "            self._writer = None\n            return decision.answer, known\n    "
        "    self._be_same_log",
        _REGISTRY,
        ("RegistryProbe", "check_registry"),
    ),
    "a registry node does not read on for an id that it lacks": Bug(
        _NODE,
        "yield from self._log.reaching(self._ends.result(timeout_s), deadline)",
        "yield from ()",
        _REGISTRY,
        ("RegistryProbe",),
    ),
    "a registry node passes over another node's first record": Bug(
        "hub.schema_registry.server.applied_log",
        "if record.offset < self.position:\n                    continue  # this node's own",
        "if record.offset <= self.position and self.position:\n                    "
        "continue  # this node's own",
        _REGISTRY,
        ("RegistryProbe", "check_registry"),
    ),
    # ---- Kafka clients
    "the read proxy drops a bad batch's neighbors": Bug(
        "hub.kafka.protocol.bounded_frames",
        "batch.view if judgement.why is None else stand_in(batch, judgement.why)",
        "batch.view if batch.is_control or not any(each.why for each in judgements) else stand_in(batch, "
        'judgement.why or "")',
        ("a record that", "SIGSTOP materializer"),
        _STALE,
    ),
    # ---- expiry, groups, counts
    "a row that is over stays": Bug(
        "hub.materializers.definition.compiling.stages",
        "COALESCE(_last_at <= _cutoff, TRUE)",
        "COALESCE(_last_at < _cutoff, TRUE)",
        _KILLS,
        _ROWS,
    ),
    "a group is carried one record too far": Bug(
        "hub.replication.ownership.group_offsets",
        "reason, offset, found.offset, found.offset, found.distance",
        "reason, offset, found.offset + 1, found.offset + 1, found.distance",
        _MIRROR,
        ("check_group",),
    ),
    "a topic that was made again is copied from its second record": Bug(
        f"{_SHARD}.shard_start",
        "first, end = facts.first, facts.target_end",
        "first, end = facts.first + (before is not None), facts.target_end",
        ("a topic is deleted",),
        ("check_passing",),
    ),
    "the first record of a stretch is not counted": Bug(
        "hub.completeness.counting",
        "OffsetRange(self.cluster, place, first, end, compact), Cells()",
        "OffsetRange(self.cluster, place, min(first + 1, end), end, compact), Cells()",
        _KILLS,
        ("check_completeness",),
    ),
    # ---- states of views
    "a silent materializer's views are shown as they were": Bug(
        _STATES, "SILENT_S = 30.0", "SILENT_S = 30_000.0", _SILENT, ("violations",)
    ),
    "the wrong link is called silent": Bug(
        _STATES,
        'if kafka else "Kafka answers"',
        'if not kafka else "Kafka answers"',
        _SILENT,
        ("violations",),
    ),
}


def plant(name: str) -> None:
    """From now on the bug's module is imported with its edit.
    Raises KeyError for a bug that is not in the table."""
    sys.meta_path.insert(0, _Finder(BUGS[name]))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, bug: Bug) -> None:
        self.bug = bug

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.bug.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Edited(name, spec.origin, self.bug)
        return spec


class _Edited(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, bug: Bug) -> None:
        super().__init__(name, path)
        self.bug = bug

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        """Compile the edited source; never load bytecode."""
        source = self.get_data(self.path).decode()
        if source.count(self.bug.before) != 1:
            raise ImportError(
                f"the planted bug's text stands {source.count(self.bug.before)} times in {fullname}"
            )
        return compile(source.replace(self.bug.before, self.bug.after), self.path, "exec", dont_inherit=True)
