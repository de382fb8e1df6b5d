"""[core] Configuration: ``mirrors.py`` has the fields of ``mirrors.yaml``, ``load_mirrors.py`` reads it, and
``topology.py`` derives which mirror carries which topic, and refuses cycles.
"""
