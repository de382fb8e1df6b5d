"""Iceberg tables of topics: records of the log, written exactly once into tables that other engines read.

A topic with ``lake: true`` in topics.yaml has one table, named by its labels below a namespace. A row is a
record: partition, offset, timestamp, key, headers and schema id, and a column for each field of its schema.
The tables are partitioned by day. The positions of the next records are in the summary of each snapshot, so
rows and positions are one commit, and a killed writer continues from the last snapshot::

    Kafka ──▶ batch.py ──▶ rows.py ──▶ table.py: append(rows, positions), one commit ──▶ catalog, warehouse
                 │ records that do not decode
                 └──▶ <topic>.dlq

A commit names the snapshot that it follows. Of two writers, one commit succeeds; the other one reads the
positions again. The engine is pyiceberg with pyarrow, in a process of its own (``hub lake run``).

    columns.py    [core]  a schema as columns, and values of events converted for them
    evolution.py  [core]  changes that bring a table's schema to the columns
    snapshots.py  [core]  positions in a snapshot's summary; which files are compacted
    rows.py       [core]  records as Arrow tables; a record that does not fit is set aside
    schemas.py    [shell] schema versions of a topic, and decoders by schema id
    table.py      [edge]  one table: create, evolve, append, compact
    batch.py      [shell] read and decode the next records of a topic
    writer.py     [shell] the loop over topics
    verify.py     [shell] a table compared with the log
    archive.py    [shell] archives of topics for queries    archived_table.py [edge] one of them
    note.py       [edge]  the writer's state in a file, for commands, pages and metrics
"""
