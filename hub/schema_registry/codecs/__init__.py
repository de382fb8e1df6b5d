"""[core] Values and bytes: JSON to and from Avro, JSON Schema and Protobuf.

wire_format.py       magic byte, schema id, body
values.py            any format: JSON values to bytes, and back
avro_encoder.py      JSON to Avro bytes, or an error with a path; ``avro_scalars.py``, ``misfit.py``
logical_text.py      times, decimals and UUIDs as text, in both directions
avro_to_json.py      Avro bytes to JSON, up to the first broken byte
avro_validator.py    check bytes against a schema without decoding them
avro_resolution.py   resolve a writer's schema against a reader's; ``avro_defaults.py``
unreadable.py        exceptions of decoding
rereading.py         check that an event can be read with another schema
"""
