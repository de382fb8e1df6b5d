"""[edge] The terminal: ``output.py`` tables and JSON, ``rows.py`` [core] rows as text, ``row_pages.py`` pages
of rows and their options, ``progress.py`` progress of counted things, ``conditions.py`` [core] ``--where``,
``watch_option.py`` ``--watch``, ``interrupt.py`` Ctrl-C that is never lost.
"""
