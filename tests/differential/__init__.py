"""Random SELECTs, answered by the hub over its stores and by a real Postgres over the same rows.

    tables.py    two tables of random rows: nulls, ties, odd texts
    grammar.py   random statements of the dialect that the hub supports
    worlds.py    a store in SQLite, one in Postgres, and the database that says what is right
    compare.py   ask all, and say what differs

``./run bench differential`` runs thousands of statements; a sample of fixed seeds is in
tests/integration/test_random_queries.py. A difference is mended, and becomes a case in tests/sql_cases.py.
"""
