"""[edge] Everything that imports pyspark: sessions, sources, and the streaming queries of views.

session.py session_settings.py         the Spark session, and one streaming query a view
slots.py                   task slots of a session, shared by its views
kafka_source.py            options for reading from and writing to Kafka
formats/                   events that are not Avro, decoded
dataframes.py              an entity view's plan on DataFrames
sql_stream.py sql_rows.py  a SQL view that Spark runs natively
delta_stream.py delta_engine.py         a SQL view that the incremental engine runs, with DuckDB; its parts are in delta/
python_udfs.py python_udf_worker.py     a view's Python functions in Spark
functions/                 the sandbox of these functions, and how Spark starts their workers
read_ends.py               how far a running query may read
building/                  the functions of PySpark views: run, and their plans read
checkpoints/               batches that a checkpoint has
checkpoint_corruption.py   corrupt checkpoints: detected, and their files quarantined
"""  # noqa: E501
