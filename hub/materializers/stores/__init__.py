"""Stores: where the rows of views are kept, together with the positions they cover.

store.py            [core] the port: a row's version, and operations of any store for appliers and verification
open_store.py       [edge] from a URL to a store
stored_row.py       [core] a view's columns and rows as every store keeps them, and the digest of a row
columns.py          [edge] Avro values in SQL columns
sql_store.py        [edge] SQLite and Postgres, by SQLAlchemy; its parts are in sql/
prepared.py prepared_postgres.py     rows by key through prepared statements
duckdb_store.py     [edge] one DuckDB file              iceberg_store.py  [edge] Iceberg tables
iceberg_table.py    [edge] one of them: read, commit    iceberg_merge.py  [core] which rows count, which files change
arrow.py                             code shared by the columnar stores
"""  # noqa: E501
