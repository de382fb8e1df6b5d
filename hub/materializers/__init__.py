"""Materializers: events of many systems become one live view, published as a changelog and served by key.

What this package knows: views, declared in ``views/<name>.yaml``. Everything else is derived from the log and
can be rebuilt.

Flow::

    source topics ─▶ Spark: decode → tag → fold by key ─▶ changelog topic ─▶ appliers ─▶ stores ─▶ pull, push
                       (checkpoint: RocksDB state)   └──▶ <topic>.dlq          (rows + positions, one transaction)
                       └─▶ _hub.progress: which source positions each stretch of the changelog covers

Promises. A changelog row carries the number of events folded into it (``hub.version``), and a store never
lets a row go back to a lower one. So replays, duplicates and fenced writers change nothing: at-least-once
delivery becomes exactly-once state. Rows and positions are written in one transaction. Reading needs neither
Spark nor Kafka.

    types/             event and column types: Avro, JSON, CSV, Protobuf, Spark SQL
    sql_rules/         what Spark SQL refuses, or computes differently when it is repeated
    definition/        what a view is: its YAML, its plan, its lineage, what a schema change breaks. No Spark
    planning/          which engine keeps a SQL view right; the plan of the incremental engine
    search/            words of rows and queries of text searches
    progress/          the records of ``_hub.progress``: positions, states, latencies
    snapshot_groups/   several views at one place of the log
    versions/          build a changed view beside the serving one, compare, swap, roll back
    isolation/         views that end Spark run in a process of their own
    spark/             everything that imports pyspark
    engine/            the materializer process: one thread a view
    changelog/         changelog records as rows
    stores/            where rows are kept: SQLite, Postgres, DuckDB, Iceberg tables
    applying/          the applier process: changelog to stores; row TTL
    verification/      does a store equal its changelog? Once, and continuously
    serving/           rows by key, by index and by subscription, over HTTP
    queries/           SQL over views and recent events
    golden/            tests of views: events in, rows out
"""  # noqa: E501
