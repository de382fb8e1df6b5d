"""The server.

``node.py`` [shell] keeps the state in memory, fed by the log; writes are fenced, appended, applied, then
answered. ``shared_run.py`` [core] lets waiting callers share one run. ``sql_rows.py`` [core] and
``sql_tables.py`` [edge] write the registry as SQL tables.
"""
