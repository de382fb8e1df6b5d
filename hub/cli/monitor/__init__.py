"""[edge] Monitoring: ``lag.py``, ``latency.py``, ``lineage.py``, ``completeness.py`` (hub completeness),
``canary.py``, ``alert.py``, ``top.py``."""
