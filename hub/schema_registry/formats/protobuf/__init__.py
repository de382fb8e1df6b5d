"""Protobuf as a format of the registry. ``schema.py`` parses with ``protoc.py`` [edge] within limits,
``imports.py`` holds the files that need no reference, ``text.py`` writes .proto text, ``tags.py`` reads and
writes Confluent's tags, ``differences.py`` explains why a reader cannot read, ``format.py`` implements
``Format``.
"""
