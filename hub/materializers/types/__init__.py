"""[core] Types of events and columns, without Spark and without a registry.

``avro_types.py`` projects Avro schemas for reading and derives them for writing. ``source_formats.py``
describes JSON, CSV, JSON Schema and Protobuf as columns, by ``ddl.py``, ``json_schema_types.py`` and
``protobuf_types.py``. ``json_defaults.py`` fills in defaults of JSON Schemas. ``cdc.py`` describes change
events of Debezium as rows. ``named_files.py`` has the files that a view names.
``spark_text.py`` writes names and values as Spark SQL text.
"""
