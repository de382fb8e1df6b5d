"""Clauses of a query: functions that write one part of a statement, each with the writer as first argument.

select.py          [core] a SELECT or a UNION     from_clause.py    [core] FROM and joins
ordering.py        [core] ORDER BY and LIMIT      expressions.py    [core] subqueries, aggregates, windows
names.py           [core] columns and parameters
"""
