"""Parts of the store in SQLite and Postgres: each knows one topic, ``sql_store.Store`` joins them.

connection.py       [edge] engine, transactions, and errors of a database as errors of the hub
tables.py           [edge] a view's table and the store's own tables: definition, change, and a row in them
catalog.py          [edge] metadata in a transaction: definitions, served versions, positions, progress
feed.py scans.py    [edge] snapshots and changes for subscribers; all rows of a table
queries.py          [edge] statements that read rows, as values; nothing here talks to a database
names.py            [core] names within the databases' limits, and the statement that takes newer rows
text_tables.py      [edge] the words of a view's rows, beside its table
text_search.py      [edge] rows that match a text query, the best first
postgres_copy.py    [edge] COPY and merge of many rows
"""
