"""Planted bugs: edits of one place of the product's source, made while a process imports it. No file is changed.

The fault suite must find each of them (``bench/soak.py --bugs``). A unit test keeps the table true: each text that is
replaced stands exactly once in its module.
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
    """``before`` is replaced by ``after`` in a module's source. ``faults``: kinds that show it, by a part of their names."""

    module: str
    before: str
    after: str
    faults: tuple[str, ...]


_KILLS = ("kill -9 applier", "kill -9 server", "kill -9 materializer")
_MIRROR = ("kill -9 mirror", "SIGSTOP mirror", "away Kafka: cut", "away Kafka: EndTxn")
_REGISTRY = ("kill -9 server", "SIGSTOP server")
_HTTP = ("HTTP: cut", "HTTP: half open")

_SQL = "hub.materializers.stores.sql"
_APPLIER = "hub.materializers.applier"
_ENGINE = "hub.materializers.engine"
_BATCH = "hub.replication.batch_engine"
_GATEWAY = "hub.topics.gateway"
_PUSH = "hub.materializers.push"

BUGS: dict[str, Bug] = {
    # ---- stores and applier
    "a store takes no newer rows": Bug(
        _SQL,
        "WHERE excluded.{quote(newer)} > {quote(table.name)}",
        "WHERE excluded.{quote(newer)} < {quote(table.name)}",
        _KILLS,
    ),
    "a store keeps deleted rows": Bug(
        _SQL,
        'values: dict[str, Any] | None = None\n    if not found["_deleted"]:',
        "values: dict[str, Any] | None = None\n    if True:",
        _KILLS,
    ),
    "Postgres takes older rows by COPY": Bug(
        "hub.materializers.stores.postgres_copy",
        'f"WHERE excluded._version > {name}._version"',
        'f"WHERE excluded._version < {name}._version"',
        ("power cut", "kill -9 Postgres"),
    ),
    "a store's positions run ahead of its rows": Bug(
        _SQL,
        '"next_offset": offset,\n                    }\n                    for kind, reached in kinds',
        '"next_offset": offset + 5 * (kind == "changelog"),\n                    }\n                    for kind, reached in kinds',
        _KILLS,
    ),
    "source positions are told one batch early": Bug(
        _SQL,
        '("source", batch.sources),',
        '("source", Positions({tp: offset + 50 for tp, offset in batch.sources})),',
        _KILLS,
    ),
    "the last row of a transaction is left out": Bug(
        _SQL,
        "rows = [_row(known, key, change, now) for key, change in newest.items()]",
        "rows = [_row(known, key, change, now) for key, change in newest.items()][: max(1, len(newest) - 1)]",
        _KILLS,
    ),
    "the applier goes on behind its position": Bug(
        _APPLIER,
        'at = start if fresh else start.advanced(self.store.positions(view.table, "changelog"))',
        "at = self.log.end_offsets([view.changelog]) if not fresh else start",
        _KILLS,
    ),
    "the applier forgets what it read ahead": Bug(
        _APPLIER,
        "taken, self._ahead = self._ahead or self._poll(self.reader, timeout_s), None",
        "taken, self._ahead = self._poll(self.reader, timeout_s), None",
        ("every core busy", "SIGSTOP applier"),
    ),
    # ---- materializer
    "progress covers what is not read yet": Bug(
        _ENGINE,
        "batch.sources,\n            Positions(),\n            batch.input_rows,",
        "Positions({tp: offset + 40 for tp, offset in batch.sources}),\n            Positions(),\n            batch.input_rows,",
        _KILLS,
    ),
    "a rebuilt view has its old generation": Bug(
        _ENGINE,
        "generation = max(self._published_generation(), *_generations(folder), 0) + 1",
        "generation = 1",
        ("a checkpoint is gone",),
    ),
    "Spark reads what was rolled back": Bug(
        "hub.materializers.spark_kafka",
        '"kafka.isolation.level": "read_committed"',
        '"kafka.isolation.level": "read_uncommitted"',
        _KILLS,
    ),
    "a damaged checkpoint is gone on from": Bug(
        _ENGINE,
        "wrong = damage.of_logs(checkpoint, delta=made.delta is not None)",
        "wrong = None",
        ("newest offsets are cut short",),
    ),
    # ---- reads and pushes
    "tokens are not waited for": Bug(
        "hub.materializers.quick_reads",
        "return all(positions.get(tp, -1) >= offset for tp, offset in token) or row_covers(row.sources, token)",
        "return True",
        ("SIGSTOP applier", "kill -9 materializer"),
    ),
    "a token is compared one too low": Bug(
        "hub.materializers.quick_reads",
        "positions.get(tp, -1) >= offset for tp",
        "positions.get(tp, -1) >= offset - 1 for tp",
        ("SIGSTOP applier",),
    ),
    "a row covers what came after it": Bug(
        "hub.materializers.tokens",
        '(origin["topic"], origin["partition"]): origin["offset"] + 1',
        '(origin["topic"], origin["partition"]): origin["offset"] + 100',
        ("SIGSTOP applier",),
    ),
    "a page ends with the next page's first row": Bug(
        _SQL,
        "where.append(table.c.key > self._key(after))\n            query = select(table)",
        "where.append(table.c.key >= self._key(after))\n            query = select(table)",
        _KILLS,
    ),
    "subscribers are not told of deletes": Bug(
        _PUSH,
        'yield Event("delete" if row.values is None else "upsert", mark, _body(row))',
        'if row.values is None:\n                continue\n            yield Event("upsert", mark, _body(row))',
        _KILLS,
    ),
    "a subscriber resumes behind the last page": Bug(
        _PUSH,
        "start = place or Place(known.incarnation, Positions()",
        "place = place and Place(place.incarnation, Positions({tp: at + 20 for tp, at in place.positions}), place.after, place.filters)\n"
        "            start = place or Place(known.incarnation, Positions()",
        ("kill -9 server",),
    ),
    "a subscriber's first page is its last": Bug(
        _PUSH, "in_snapshot = len(rows) == _PAGE", "in_snapshot = False", ("kill -9 server",)
    ),
    # ---- gateway
    "the gateway answers before Kafka does": Bug(
        _GATEWAY,
        "            sender.send(new, acknowledged)\n",
        "            acknowledged(TopicPartition(new.topic, 0), 0, None)\n            sender.send(new, lambda *_: None)\n",
        _HTTP,
    ),
    "an idempotency key is not looked at": Bug(
        _GATEWAY,
        "key = request.idempotency_key\n        if key is not None:\n            with self._lock:\n                if keep:",
        "key = None\n        if key is not None:\n            with self._lock:\n                if keep:",
        _HTTP,
    ),
    "the gateway answers with the next offset": Bug(
        _GATEWAY,
        "line = _written(cluster_id, place, offset, timestamp_ms, new, schema_id)",
        "line = _written(cluster_id, place, offset + 1, timestamp_ms, new, schema_id)",
        _HTTP,
    ),
    # ---- mirror
    "a mirror resumes behind its checkpoint": Bug(
        _BATCH,
        "each.committed = found\n",
        "from dataclasses import replace as _r\n        found = _r(found, source_next=found.source_next + 3)\n        each.committed = found\n",
        _MIRROR,
    ),
    "a mirror resumes before its checkpoint": Bug(
        _BATCH,
        "each.committed = found\n",
        "from dataclasses import replace as _r\n        found = _r(found, source_next=max(0, found.source_next - 3))\n        each.committed = found\n",
        _MIRROR,
    ),
    "the offset map is one off": Bug(
        _BATCH,
        "Run(run.source, base_offset + run.target, run.count)",
        "Run(run.source, base_offset + run.target + 1, run.count)",
        _MIRROR,
    ),
    "a mirror's aborted transaction counts": Bug(
        _BATCH,
        "self._transactions.end(self._producer, commit=True)\n        done = 0",
        "self._transactions.end(self._producer, commit=False)\n        done = 0",
        _MIRROR,
    ),
    "a mirror carries what was rolled back": Bug(
        _BATCH,
        "            floor,\n            part.aborted,\n",
        "            floor,\n            (),\n",
        _MIRROR,
    ),
    "a mirror passes over what failed": Bug(
        _BATCH,
        "if answer.next_offset > each.position:",
        "if len(answer.pieces) > 1:\n            each.staged.pop()\n        if answer.next_offset > each.position:",
        _MIRROR,
    ),
    "a translated position is one too low": Bug(
        "hub.replication.offset_map",
        'return Translation("exact", self.others[at] + offset - self.starts[at])',
        'return Translation("exact", max(0, self.others[at] + offset - self.starts[at] - 1))',
        _MIRROR,
    ),
    # ---- registry
    "a new writer does not read to the end": Bug(
        "hub.schema_registry.node",
        "            self._be_same_log(known, end)\n            self._reach(end)\n",
        "            self._be_same_log(known, end)\n",
        _REGISTRY,
    ),
    "a fenced registry node answers all the same": Bug(
        "hub.schema_registry.node",
        "            except WriterFenced:\n",
        "            except ZeroDivisionError:\n",
        _REGISTRY,
    ),
    # ---- Kafka clients
    "Python reads what was rolled back": Bug(
        "hub.kafka.reader",
        '"isolation_level": "read_committed"',
        '"isolation_level": "read_uncommitted"',
        _KILLS,
    ),
}


def plant(name: str) -> None:
    """From now on the bug's module is imported with its edit. Raises KeyError for a bug that is not in the table."""
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
        """Of the edited source; never from bytecode."""
        source = self.get_data(self.path).decode()
        if source.count(self.bug.before) != 1:
            raise ImportError(
                f"the planted bug's text stands {source.count(self.bug.before)} times in {fullname}"
            )
        return compile(source.replace(self.bug.before, self.bug.after), self.path, "exec", dont_inherit=True)
