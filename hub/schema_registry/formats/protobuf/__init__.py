"""Protobuf as a format of the registry.

::

    format.py               [core] implements ``Format``
    schema.py protoc.py     [edge] parse with protoc, within limits
    imports.py              [core] files that need no reference
    text.py                 [core] writes .proto text; scoped_names.py and literals.py are its parts
    tags.py                 [core] reads and writes Confluent's tags
    differences.py sides.py [core] explain why a reader cannot read
"""
