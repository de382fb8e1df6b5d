"""[core] Avro as a format of the registry. ``types.py`` is the graph of a schema's types, ``schema.py``
parses within limits and writes canonical text, ``format.py`` implements ``Format`` and explains why a reader
cannot read.
"""
