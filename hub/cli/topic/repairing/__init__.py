"""``hub topic repair``, ``hub topic generations`` and ``hub topic consume``."""
