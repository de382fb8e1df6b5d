"""[edge] hub schema: ``commands.py`` the group; ``folder.py`` plan, apply, check
(``folder_output.py``); ``diff.py`` diff, search,
infer; ``explain.py``;
``impact.py`` views and groups that a plan affects; ``backup.py`` backup and restore; ``rebuild.py``.
"""
