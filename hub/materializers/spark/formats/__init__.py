"""Events that are not Avro, decoded in Spark: JSON, CSV, JSON Schema and Protobuf.

change_events.py    [edge] change events of Debezium as rows of their table
decryption.py       [edge] an Arrow function that decrypts events of sources with ``decrypt``
event_formats.py    [edge] expressions that decode an event, and say why it does not fit
protobuf_rows.py    [edge] an Arrow function that decodes Protobuf messages in a Python worker
"""
