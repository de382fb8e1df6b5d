"""Random statements, and what is right.

    tables.py        two tables of random rows: nulls, ties, odd texts
    grammar.py       random SELECTs of the dialect of queries
    worlds.py        a store in SQLite, one in Postgres, and the database that says what is right
    compare.py       ask all three, and say what differs
    view_grammar.py  random SQL of incremental views
    view_compare.py  run them over random changes, and compare their rows with those of Spark alone

``./run bench differential`` runs thousands. The tests have a sample of fixed seeds: test_random_queries.py
and test_delta.py of tests/integration. A difference is mended, and becomes a case in tests/sql_cases.py or a
shape in test_delta.py.
"""
