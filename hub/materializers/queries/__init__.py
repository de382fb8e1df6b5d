"""SQL over views and recent events: parsed, checked, compiled to one read-only statement, and run within limits.

parser.py              [core]  text to a statement, within limits; errors point at the place
functions.py           [core]  operators and functions, their types, their text in each database
compiler.py            [core]  a statement and its tables to SQL for SQLite or Postgres
executor.py            [edge]  runs it
sqlite_functions.py    [edge]  a read-only SQLite connection with the hub's functions
topic_rows.py          [shell] recent events of a topic as rows
saved_queries.py       [core]  the SQL files in ``queries/``
routes.py              [edge]  FastAPI
"""
