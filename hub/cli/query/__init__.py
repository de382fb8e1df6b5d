"""[edge] Reading: ``query.py`` hub query, ``sql.py`` hub sql, ``watch.py`` hub watch.

The shell of ``hub sql`` is ``sql_shell.py``, with ``sql_session.py`` (the server), ``sql_output.py``,
``sql_listings.py`` and ``sql_completion.py``.
"""
