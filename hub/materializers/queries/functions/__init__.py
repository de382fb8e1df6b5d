"""Operators and functions of query expressions: their types, and their SQL for each database.

Both databases give the same answer. A division by zero and a failed cast give null, as in views. NULL sorts
as the greatest value, as in Postgres. Where SQLite lacks a function, the handler uses a ``hub_*`` function
that sqlite_functions.py registers.

catalog.py        [core] which handler compiles which operator or function
kinds.py          [core] kinds of values, and their conversion
operators.py casts.py texts.py values.py aggregates.py     [core] the handlers, by topic
"""
