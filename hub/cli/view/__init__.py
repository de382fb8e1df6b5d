"""[edge] hub view: ``commands.py`` the group; ``show.py``; ``golden.py`` test; ``verify.py``; ``versions.py``
plan, apply, rollback, drop, rewind. ``schemas_source.py`` finds the schemas of a view's sources in the
project.
"""
