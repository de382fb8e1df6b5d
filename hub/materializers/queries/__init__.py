"""SQL over views and recent events: parsed, checked, compiled to one read-only statement, and run within
limits.

parser.py              [core]  text to a statement, within limits; errors point at the place
compiler.py            [core]  a statement and its tables to SQL for SQLite or Postgres
clauses/ functions/    [core]  the compiler's parts: clauses of a query; operators and functions, with their types
writer.py relations.py [core]  what these parts write with: the state of a statement, tables, and scopes
inspection.py          [core]  tables, names and parameters of a statement
executor.py            [edge]  runs it                   databases.py  [edge] the databases it runs in
whole_topic.py         [core]  the whole past of a topic: ranges of its archive and its log
running.py             [core]  a running query and its answer, within limits
sqlite_functions.py    [edge]  a read-only SQLite connection with the hub's functions
topic_rows.py          [shell] recent events of a topic as rows    topic_columns.py  [core] its columns
saved_queries.py       [core]  the SQL files in ``queries/``
push/                  [shell] EMIT CHANGES             statements/   [shell] CREATE, DROP, SHOW, DESCRIBE, EXPLAIN
http/                  [edge]  FastAPI, admission, and the forms of an answer
"""  # noqa: E501
