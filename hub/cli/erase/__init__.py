"""``hub erase``: erasures of persons at the running server. ``commands.py``."""
