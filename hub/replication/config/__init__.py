"""[core] Configuration: ``mirrors.py`` reads ``mirrors.yaml``; ``topology.py`` derives which mirror carries
which topic, and refuses cycles.
"""
