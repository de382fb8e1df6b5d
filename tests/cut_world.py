"""Two views of one group over a changelog in memory, an applier and a real store:
what the tests of cuts in stores share."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from changelog import Cluster, Schemas

from hub.materializers.applying.applier import Applier
from hub.materializers.definition.entity_view import View
from hub.materializers.progress.records import PROGRESS_TOPIC, Progress, ViewState
from hub.materializers.queries.executor import QueryExecutor
from hub.materializers.queries.parser import parse
from hub.materializers.queries.running import RunningQuery
from hub.materializers.snapshot_groups.group import GroupSnapshot, MemberPosition
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import Meanwhile, StoreRefused, ViewBatch
from hub.record import NewRecord, Positions
from hub.schema_registry.codecs.wire_format import encode, parsed

BOTH = "SELECT (SELECT sum(points) FROM a) AS of_a, (SELECT sum(points) FROM b) AS of_b"


class Killed(Exception):
    """kill -9 in the middle of a transaction."""


class Unsteady(Store):
    """Records the content of each transaction. On request it fails in the middle of a transaction, or refuses
    a view's rows. Its server is slow.
    """

    dies = False
    refuses = ""
    turns = 0  # that others had meanwhile

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.transactions: list[set[str]] = []

    def apply(
        self,
        batches: Sequence[ViewBatch],
        progress: Mapping[str, Any] | None = None,
        meanwhile: Meanwhile | None = None,
    ) -> None:
        if meanwhile is not None:
            meanwhile()
            self.turns += 1
        if self.dies and batches:
            raise Killed
        if any(each.view == self.refuses for each in batches):
            raise StoreRefused("not these")
        super().apply(batches, progress)
        self.transactions.append({each.view for each in batches})


class World:
    """Two views of the same events, counted by different keys: the sums are equal only if both have the same
    events.
    """

    def __init__(self, store: Path | str, seed: int = 0, **limits: Any) -> None:
        self.chance = random.Random(seed)
        self.cluster = Cluster()
        for topic, partitions in (("views.a", 2), ("views.b", 2), (PROGRESS_TOPIC, 1)):
            self.cluster.create_topic(topic, partitions=partitions, config={}, replication_factor=1)
        self.schemas = Schemas()
        self.store = Unsteady(store if isinstance(store, str) else f"sqlite:///{store / 'store.db'}")
        self.queries = QueryExecutor(self.store)
        self.views = [
            View.model_validate(
                {
                    "view": name,
                    "cut": "shop",
                    "sources": {"s": {"topic": "in", "key": "k"}},
                    "fields": {"points": "s.points"},
                }
            )
            for name in "ab"
        ]
        self.limits = {"cut_wait_s": 5.0, "most_waiting": 1_000, **limits}
        self.now_s = 0.0
        self.folded = {"a": 0, "b": 0}  # events, as far as each view's changelog has them
        self.told = 0
        self.applier = self.restarted()
        for name in "ab":
            self.tell(ViewState(name, "live", 1, None, "", "", {"s": "in"}, None, "shop").record())

    def restarted(self) -> Applier:
        applier = Applier(self.cluster, self.schemas, self.store, **self.limits)
        applier.clock = lambda: self.now_s
        applier.many = self.chance.choice((1, 1_000))
        applier.follow(self.views)
        return applier

    def tell(self, record: NewRecord) -> None:
        self.cluster.writer().append([record])

    def fold(self, view: str, until: int) -> None:
        """The rows of the next events, as the view writes them."""
        for number in range(self.folded[view], until):
            ways = {"a": 5, "b": 3}[view]
            key, version = f"{view}{number % ways}", (1 << 40) + number // ways + 1
            row = {"city": None, "points": number // ways + 1, "_version": version}
            value = encode(1, parsed(json.loads(self.schemas.schema(1))), row)
            headers = (("hub.version", str(version).encode()),)
            self.tell(NewRecord(f"views.{view}", key.encode(), value, headers))
        self.folded[view] = max(until, self.folded[view])

    def progress(self, view: str) -> None:
        end = self.cluster.end_offsets([f"views.{view}"])
        sources = Positions.of([("in", 0, self.folded[view])])
        self.tell(Progress(view, 1, self.folded[view], "live", sources, end, 1, 1, 1).record())

    def cut(self, until: int) -> None:
        """Bring both views to the same events and publish the snapshot group of the materializer."""
        for view in "ab":
            self.fold(view, until)
        assert set(self.folded.values()) == {until}
        self.told = until
        places = {
            view: MemberPosition(1, self.cluster.end_offsets([f"views.{view}"]), ("in",)) for view in "ab"
        }
        self.tell(GroupSnapshot("shop", Positions.of([("in", 0, until)]), places, until).record())

    def drain(self) -> None:
        while self.applier.step(0):
            pass
        self.applier.step(0)

    def answer(self) -> tuple[int, int, CommonSnapshot]:
        answer = self.queries.run(parse(BOTH), {}, RunningQuery(time.monotonic() + 60.0), now_ms=1)
        return answer.rows[0][0] or 0, answer.rows[0][1] or 0, answer.cut

    def at(self) -> int | None:
        """Return the number of events in the snapshot that the store is at; None if it is at none. Checks
        that the store's answer is right.
        """
        of_a, of_b, common = self.answer()
        if not common.together:
            assert common.why
            return None
        ((_, events),) = common.at
        assert (of_a, of_b) == (events, events), "this is not a cut"
        return events

    def close(self) -> None:
        self.queries.close()
        self.store.close()

    def rampage(self, steps: int) -> None:
        """Apply rows, snapshots, restarts and kills in any order, and query after each. At the end the store
        is at the last snapshot.
        """
        chance, seen = self.chance, set()
        for _ in range(steps):
            what = chance.random()
            view = chance.choice("ab")
            if what < 0.3:
                most = min(self.folded.values()) + 12
                self.fold(view, min(most, self.folded[view] + chance.randint(1, 6)))
            elif what < 0.35:
                self.progress(view)
            elif what < 0.5:
                self.cut(max(self.folded.values()))
            elif what < 0.55:
                self.now_s += chance.choice((1.0, 3.0, 7.0))
            elif what < 0.59:
                self.applier = self.restarted()
            elif what < 0.63:
                self.store.dies = True
                try:
                    self.applier.step(0)
                except Killed:
                    self.applier = self.restarted()
                self.store.dies = False
            elif what < 0.65:
                self.applier.follow(self.views)
            else:
                self.store.rhythm = type(self.store.rhythm)(chance.choice((3, 10, 100)))
                self.applier.step(0)
            seen.add(self.at())
        self.store.rhythm = type(self.store.rhythm)(1_000)
        self.cut(max(self.folded.values()))
        self.drain()
        self.cut(max(self.folded.values()) + 1)
        self.drain()
        assert self.at() == self.folded["a"]
        assert len(seen) > 3
