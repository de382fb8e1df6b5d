"""One topic, closely: ``describe.py`` settings and their origin, ``browse.py`` messages, ``rendered.py`` [core] a record as people
see it, ``readers.py`` who reads it, ``routes.py`` [edge] FastAPI.
"""
