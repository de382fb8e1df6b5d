"""[edge] Monitoring: ``lag.py``, ``latency.py``, ``lineage.py``, ``completeness.py`` (hub audit), ``canary.py``, ``alert.py``, ``top.py``."""
