"""Start Spark as the hub does, do one step, print how many seconds the step took, and wait to be killed.

Settings come from ``HUB_*``. Arguments: the step, then topics. ``start`` opens the session only; ``read``
reads every event of the topics into Spark's sink that drops all rows; ``count`` counts the events of each
record key first, which is the least that a view is. No event is decoded, no state is kept, nothing is
written.
"""

from __future__ import annotations

import os
import sys
import time

from hub.config import Settings
from hub.materializers.spark import kafka_source
from hub.materializers.spark import session as spark
from hub.materializers.spark.slots import Slots, local_slots


def main(step: str, topics: list[str]) -> None:
    settings = Settings()
    slots = local_slots(settings.spark_master, os.cpu_count() or 1) or 2
    session, _ = spark.open_session(settings, Slots(slots, slots, slots))
    began_at = time.monotonic()
    if step != "start":
        events = (
            session.read.format("kafka")
            .options(**kafka_source.reading(settings, "bulk"))
            .option("subscribe", ",".join(topics))
            .option("startingOffsets", "earliest")
            .load()
            .coalesce(settings.bulk_tasks)
        )
        if step == "count":
            session.conf.set("spark.sql.shuffle.partitions", str(settings.view_partitions))
            events = events.groupBy("key").count()
        events.write.format("noop").mode("overwrite").save()
    print(time.monotonic() - began_at, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
