"""[core] View definitions: one YAML file per view, checked before anything runs. Nothing here imports Spark.

declared.py           declarations of both kinds: names, columns, event formats, TTL, swap, verification
entity_view.py        an entity view: fields by source, folded by key
entity_plan.py        an entity view as expressions over one tagged union; compiled by compiling/
sql_view.py           a SQL view: one SELECT over topics and other views
sql_checks.py         its SQL and sources, checked; by sql_text.py, sql_query.py, sql_columns.py
load.py               YAML files to views, with the Python functions beside them
python_functions.py   Python functions that views call, read without running them
drafted.py            a first version of a view and its golden test, from the schemas of its topics
column_lineage.py     which columns of which topics a column is made of
schema_impact.py      which views a new schema would break
"""
