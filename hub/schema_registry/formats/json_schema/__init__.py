"""[core] JSON Schema as a format of the registry. ``schema.py`` parses within limits and resolves references,
``patterns.py`` reads regular expressions,
``differences/`` explains why a reader cannot read, ``format.py`` implements ``Format``.
"""
