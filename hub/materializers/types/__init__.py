"""[core] Types of events and columns, without Spark and without a registry.

``avro_types.py`` projects Avro schemas for reading and derives them for writing. ``source_formats.py``
describes JSON, CSV, JSON Schema and Protobuf as columns. ``json_defaults.py`` fills in defaults of JSON
Schemas. ``spark_text.py`` writes names and values as Spark SQL text.
"""
