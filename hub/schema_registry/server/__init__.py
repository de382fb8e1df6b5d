"""The server.

``node.py`` [shell] answers from the state in memory; writes are fenced, appended, applied, then answered.
``applied_log.py`` [shell] follows the log and keeps that state. ``shared_run.py`` [core] lets waiting
callers share one run. ``sql_rows.py`` [core] and
``sql_tables.py`` [edge] write the registry as SQL tables.
"""
