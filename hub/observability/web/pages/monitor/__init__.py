"""[core] Pages for monitoring: ``lag.py``, ``latency.py``, ``lineage.py``, ``completeness.py``
(``completeness_times.py``),
``alerts.py``, ``cluster.py``, ``connect.py``, ``mirrors.py`` and ``views.py``."""
