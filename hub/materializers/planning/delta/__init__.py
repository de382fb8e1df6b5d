"""Parts of the incremental engine's planner: from a view's SQL to the values that suffice for each of its
tables.

query_reader.py   [core] the SQL as relations
relations.py      [core] relations as a tree, and constraints on their rows
selections.py     [core] selections pushed through relations
expressions.py    [core] which values can be kept and compared
sql_text.py       [core] derived tables, cut out of the text
"""
