"""A Spark query of a user: counts by key with state, a file for each batch. Runs as a process of its own.

python moved_query.py BOOTSTRAP TOPIC CHECKPOINT OUT HOME
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hub.config import Settings
from hub.materializers.spark.session import open_session
from hub.materializers.spark.slots import Slots


def write(out: Path, rows: DataFrame, batch: int) -> None:
    """Write a batch under its id: a batch that is run again replaces its file."""
    found = {row["key"]: [row["n"], row["total"]] for row in rows.collect()}
    (out / f".{batch}").write_text(json.dumps(found))
    (out / f".{batch}").rename(out / f"{batch:06}.json")


def main() -> None:
    bootstrap, topic, checkpoint, out, home = sys.argv[1:]
    folder = Path(home)
    settings = Settings(home=folder, project=folder, spark_master="local[2]", spark_heap_mb=768)
    session, _ = open_session(settings, Slots(2, 2, 2))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    events = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )
    counted = events.groupBy(F.col("key").cast("string").alias("key")).agg(
        F.count("*").alias("n"),
        F.sum(F.expr("cast(cast(headers[0].value AS string) AS long)")).alias("total"),
    )
    query = (
        counted.writeStream.outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(lambda rows, batch: write(Path(out), rows, batch))
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
