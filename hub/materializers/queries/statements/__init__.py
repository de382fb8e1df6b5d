"""Statements about views and topics themselves: CREATE and DROP MATERIALIZED VIEW, SHOW, DESCRIBE, EXPLAIN.

A view is a YAML file of the project, kept in git. CREATE writes that file and DROP removes it, so a statement
and an edited file are the same change, and the materializer acts on files only. Answers are rows, as those of
queries, over HTTP, in ``hub sql`` and by Postgres' protocol.

grammar.py  [core]  a text as a statement           sources.py [core]  FROM "shop.orders" as a view's source
changes.py  [shell] draft, check, write, remove     answers.py [shell] SHOW, DESCRIBE, EXPLAIN of a query
service.py  [shell] grants, threads and waiting
"""
