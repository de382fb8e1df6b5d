"""Flink SQL: its statements as files of a project.

importer.py   [shell] the statements of a file, in order; statement sets
queries.py    [core] a query as the SELECT of a view
windows.py    [core] window functions, as tables and in GROUP BY
declared.py   [core] CREATE TABLE: topic, schema, watermark
functions.py  [core] Flink's functions in Spark
"""
