"""[edge] hub mirror: one module per group of commands, registered by ``commands.py``.

``context.py`` has the options, the mirrors file and its clusters; ``ownership_change.py`` carries out a
change of ownership for ``failover.py`` and ``control.py``; ``write_guard.py`` says which topics a command may
write here.
"""
