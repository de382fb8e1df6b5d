"""Views share one Spark session fairly: one that has much to read does not hold up another.

All are in Spark's default pool. That it is a fair one where the session's mode is FAIR is of this Spark; it
was none in earlier ones, where each query would want a pool of its own.
"""

from __future__ import annotations

import time

import pytest
from patience import patient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from hub.config import Settings
from hub.embedded import ensure_jars, make_archive


def events(session: SparkSession, partitions: int) -> DataFrame:
    """A batch of one row a task."""
    reading = session.readStream.format("rate-micro-batch")
    return reading.option("rowsPerBatch", partitions).option("numPartitions", partitions).load()


def started(frame: DataFrame, name: str) -> StreamingQuery:
    return frame.writeStream.queryName(name).format("noop").trigger(once=True).start()


@pytest.mark.timeout(420)
def test_a_query_with_little_to_do_is_done_before_one_with_much_that_began_earlier(
    spark_session: SparkSession,
) -> None:
    # Two minutes' work for the two slots; each task is a short one.
    slow = events(spark_session, 1_600).selectExpr(
        "reflect('java.lang.Thread', 'sleep', value * 0 + 150L) AS x"
    )
    large = started(slow, "large")
    try:
        tracker = spark_session.sparkContext.statusTracker()
        deadline = time.monotonic() + patient(60.0)
        while not any(
            (stage := tracker.getStageInfo(each)) is not None and stage.numCompletedTasks > 2
            for each in tracker.getActiveStageIds()
        ):
            assert time.monotonic() < deadline and large.isActive, large.exception()
            time.sleep(0.05)
        small = started(events(spark_session, 4), "small")
        assert small.awaitTermination(300), "it waits for the one before it"
        assert small.exception() is None and small.lastProgress is not None
        assert large.isActive and large.lastProgress is None, "the large batch was done before the small one"
    finally:
        large.stop()


def test_a_batch_takes_few_of_hadoops_settings_along(spark_session: SparkSession) -> None:
    conf = spark_session._jsparkSession.sessionState().newHadoopConf()
    assert conf.get("fs.file.impl") and conf.get("fs.AbstractFileSystem.file.impl")
    assert conf.size() < 100, (
        "Hadoop's own defaults are back: 1,100 settings in each batch, parsed in each task"
    )


@pytest.mark.timeout(420)
def test_sparks_classes_are_kept_for_the_next_start() -> None:
    """An archive that cannot be stored costs each start half a minute, without a message."""
    settings = Settings()
    assert make_archive(settings, ensure_jars(settings, ("spark",))["spark"])
