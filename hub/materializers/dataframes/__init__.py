"""[core] PySpark views: a function over data frames, carried to the SQL that every SQL view has.

A view's file names a Python function (``declared_build.py``). Spark analyzes the data frame that the function
returns, and ``spark/building/`` reads that analyzed plan as values (``plan_values.py``). ``plan_sql.py``
writes the values as one SELECT. From there on the view is a SQL view: its engine, key, lineage, masks,
golden tests and versions are those of its SQL.

Nothing here imports Spark, and nothing here runs the function.
"""
