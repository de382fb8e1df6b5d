"""Materializers: many systems' events become one live view, published as a log and served by key.

What it knows: views, declared in ``views/<name>.yaml``. Everything else is derived from the log and can be rebuilt.

Flow::

    source topics ─▶ Spark: decode → tag → fold by key ─▶ changelog topic ─▶ appliers ─▶ stores ─▶ pull, push
                       (checkpoint: RocksDB state)   └──▶ <topic>.dlq          (rows + positions, one transaction)
                       └─▶ _hub.progress: which source positions each stretch of the changelog covers

Promises. A changelog row carries the number of events folded into it (``hub.version``), and a store never lets a
row go back to a lower one, so replays, zombies and duplicates change nothing: at-least-once delivery becomes
exactly-once state. Rows and positions are written in one transaction. Reading never needs Spark or Kafka.

[core]   view.py    what a view is: the YAML, checked        shape.py   a view as expressions over a tagged union
         avro_shape.py  Avro schemas: projected for reading, derived for writing
         tokens.py query.py                                  progress.py  what was folded how far, as records
[core]   formats.py  JSON, CSV, Protobuf as columns            transforms.py  Python functions beside a view
[core]   versions.py  a changed view beside the one that serves   comparison.py  two of them compared
[core]   expiry.py  rows older than their view's ttl          [shell]  expirer.py  who says so in the log
[shell]  version_ledger.py  the versions as the log has them
[shell]  applier.py changelog → stores in bounded steps      push.py    snapshot, then changes
[edge]   spark.py   pyspark: one query a view                stores/sql.py  SQLAlchemy: SQLite and Postgres
         routes.py  HTTP                                     stores/columns.py  Avro values in SQL columns
"""
