"""[edge] py4j: control how far a running Spark query may read.

Spark's Kafka source reads up to the ends of its topics. For ``Trigger.AvailableNow`` it notes these ends
once, in a field of its own, and reads no further however many batches it makes. This module puts a running
query into that mode and sets the field again as a snapshot group advances (snapshot_groups/coordinator.py).
This is not a public interface of Spark: the two fields are looked up by name when a query starts, and a Spark
without them is reported (HUB-3059) before anything is changed.

A query of a view with ``consistent_with: transaction`` starts with a limit of no events per batch
(``kafka_source.NO_EVENTS``), so that it reads nothing before its group holds it. ``hold`` then lifts the
limit: a batch is all that is between two places, and never ends between them. Such a query is not freed.

A batch is made under a lock of the query. ``hold`` takes the same lock, so it never interferes with a batch
whose end is being chosen. pyspark gives each Python thread its own JVM thread, which owns the lock.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hub.errors import PeerError
from hub.materializers.progress.records import by_topic
from hub.materializers.snapshot_groups.group import joined
from hub.materializers.spark.checkpoints.committed_batches import positions_of
from hub.record import Positions

_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"
_LIMIT, _MOST_EVENTS = "org.apache.spark.sql.connector.read.streaming.ReadMaxRows", 2**62
_ENDS, _BOUNDED = "allDataForTriggerAvailableNow", "isTriggerAvailableNow"
# KafkaV2[Subscribe[crm.customers, shop.orders]]
_TOPICS = re.compile(r"Subscribe\[(.*?)\]")


class SparkReadEnds:
    """Implements snapshot_groups.members.ReadEnds. Called from one thread."""

    def __init__(
        self, session: SparkSession, query: StreamingQuery, checkpoint: Path, *, whole: bool = False
    ) -> None:
        """``whole``: a batch reaches from one place to the next, and the query reads nothing without one.
        Raise PeerError (HUB-3059) if this Spark lacks the required fields."""
        jvm: Any = session._jvm
        self._jvm = jvm
        self._checkpoint, self._whole = checkpoint, whole
        self._streams: list[tuple[Any, frozenset[str]]] = []
        try:
            self._execution: Any = query._jsq.streamingQuery()
            self._lock: Any = self._execution.awaitProgressLock()
            of_stream: Any = self._jvm.java.lang.Class.forName(_STREAM)
            self._ends: Any = of_stream.getDeclaredField(_ENDS)
            self._bounded: Any = of_stream.getDeclaredField(_BOUNDED)
            for each in (self._ends, self._bounded):
                each.setAccessible(True)
            self._limit: Any = self._jvm.java.lang.Class.forName(_LIMIT).getDeclaredField("rows")
            self._limit.setAccessible(True)
        except (Py4JError, TypeError) as error:
            raise _another_spark(error) from error

    def hold(self, begin: Positions) -> Positions | None:
        """See ReadEnds.hold."""
        if not self._known() or not self._lock.tryLock():
            return None
        try:
            at = begin.advanced(_last_end(self._checkpoint))
            self.until(at)
            for stream, _ in self._streams:
                self._bounded.setBoolean(stream, True)
            if self._whole:
                self._lift_limits()
            return at
        finally:
            self._lock.unlock()

    def until(self, place: Positions) -> None:
        for stream, topics in self._streams:
            text = orjson.dumps(by_topic(place.of_topics(topics))).decode()
            self._ends.set(stream, self._jvm.org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets(text))

    def free(self) -> None:
        if self._whole:
            return
        for stream, _ in self._streams:
            # first: a bounded stream without ends would note the current ones
            self._bounded.setBoolean(stream, False)
            self._ends.set(stream, None)

    def _lift_limits(self) -> None:
        """Let the next batches read everything up to their place."""
        limits = self._execution.uniqueSources().values().toSeq()
        for number in range(limits.size()):
            limit = limits.apply(number)
            if limit.getClass().getName() != _LIMIT:
                raise _another_spark(limit.toString())
            self._limit.setLong(limit, _MOST_EVENTS)

    def _known(self) -> bool:
        """Return True once the query has created its sources. Raises PeerError when they are not Kafka's."""
        if not self._streams:
            found = self._execution.sources()
            for number in range(found.size()):
                stream = found.apply(number)
                topics = _TOPICS.search(stream.toString())
                if stream.getClass().getName() != _STREAM or topics is None:
                    raise _another_spark(stream.toString())
                self._streams.append((stream, frozenset(topics[1].split(", "))))
        return bool(self._streams)


def _last_end(checkpoint: Path) -> Positions:
    """Return the end of the last batch that was made, empty if there is none. Where two sources read a
    partition, the further one."""
    made = [int(path.name) for path in (checkpoint / "offsets").glob("*") if path.name.isdecimal()]
    if not made:
        return Positions()
    lines = (checkpoint / "offsets" / str(max(made))).read_text().splitlines()[2:]
    return joined(positions_of(line) for line in lines if line.startswith("{"))


def _another_spark(error: object) -> PeerError:
    first = str(error).strip().split("\n")[0][:200]
    return PeerError(
        f"this Spark does not accept an end for a running query: {first}",
        hint="views with `cut` run on their own then; run them with the Spark that the hub was locked with",
        code="HUB-3059",
    )
