"""ksqlDB: its statements as files of a project.

importer.py    [shell] the statements of a file, in order; INSERT INTO, DROP, SET, DEFINE
views.py       [core] a query as the SELECT of a view
names.py       [core] the columns of a query
query.py       [core] the clauses of a query
declared.py    [core] CREATE STREAM|TABLE with columns: topic and schema
connectors.py  [core] CREATE CONNECTOR
functions.py   [core] ksqlDB's functions in Spark
"""
