"""[core] Values and bytes: JSON to and from Avro, JSON Schema and Protobuf.

wire_format.py       magic byte, schema id, body
values.py            any format: JSON values to bytes, and back
avro_encoder.py      JSON to Avro bytes, or a refusal with a path
avro_to_json.py      Avro bytes to JSON, and where they stop making sense
avro_validator.py    are bytes valid for a schema? Without decoding them
avro_resolution.py   a writer's schema read with a reader's
rereading.py         can an event be read with another schema?
"""
