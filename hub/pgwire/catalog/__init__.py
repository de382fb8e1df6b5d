"""Answers to clients' questions about a database: pg_catalog, information_schema, and the hub's own tables.

snapshot.py [core] what one caller sees          layout.py  [core] tables and their columns
rows.py     [core] a snapshot as their rows      macros.py  [core] Postgres' functions
rewrite.py  [core] a query as DuckDB's SQL       engine.py  [edge] DuckDB in memory
known_questions.py [core] drivers' questions in plain form
"""
