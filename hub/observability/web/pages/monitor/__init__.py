"""[core] Pages for monitoring: ``lag.py``, ``latency.py``, ``lineage.py``, ``completeness.py``,
``alerts.py``, ``cluster.py``, ``connect.py``, ``mirrors.py`` and ``views.py``."""
