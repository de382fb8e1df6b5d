"""Compile an entity view into its plan: expressions of SQL are parsed, checked, rewritten and folded.

::

    compiler.py  [core]  from a view and its sources' schemas to the plan
    stages.py    [core]  the union's columns, the aggregation, the latest entries
    checks.py    [core]  parse an expression of a view, or say why it is refused
    folds.py     [core]  aggregates over the latest entry of each identity
    trees.py     [core]  replace columns and aggregates in a tree, and write it as Spark SQL
"""
