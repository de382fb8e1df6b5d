"""[edge] Reading: ``query.py`` hub query, ``sql.py`` hub sql with ``sql_session.py`` and ``sql_shell.py``,
``watch.py`` hub watch."""
