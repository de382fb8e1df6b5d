"""[edge] Backup and restore: ``run.py`` hub backup run, ``look.py`` hub backup ls, verify and prune,
``restore.py`` hub restore, ``places.py`` clusters, places and keys of a call.
"""
