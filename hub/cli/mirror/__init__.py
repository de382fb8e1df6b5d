"""[edge] hub mirror: ``commands.py`` the group, ``import_mm2.py`` import from MirrorMaker 2, ``write_guard.py`` which topics a command
may write here.
"""
