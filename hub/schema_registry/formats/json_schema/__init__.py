"""[core] JSON Schema as a format of the registry. ``schema.py`` parses within limits and resolves references, ``differences/`` explains why a reader cannot
read, ``format.py`` is the format as the registry uses it.
"""
