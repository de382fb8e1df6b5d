"""Schemas in git.

load.py        [edge] a folder of schemas and its schemas.yaml
files.py       [core] the files of a folder
references.py  [core] references between them
plan.py        [core] the changes of a registry that a folder wants; ``rules.py`` checks policies before
apply.py       [edge] carry out the plan
diff.py        [core] the differences of two schemas: ``avro_diff.py``, ``json_schema_diff.py``,
``protobuf_diff.py``
search.py      [core] find schemas
infer.py       [core] propose a schema for ``samples.py``; its parts are in inference/
"""
