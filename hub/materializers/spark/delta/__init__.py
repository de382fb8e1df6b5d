"""Parts of the incremental engine, which ``spark/delta_engine.py`` joins into one transaction a batch.

state.py          [edge] the view's tables in one DuckDB file
inputs.py         [edge] changes applied to the tables of inputs
reach.py          [edge] from changed rows to affected handles, and to the rows that these need
stage_query.py    [edge] a stage's SQL in Spark over those rows
emitted.py        [edge] the changes of a batch, as records of the changelog
catalog.py        [edge] types of tables and queries, from Spark
"""
