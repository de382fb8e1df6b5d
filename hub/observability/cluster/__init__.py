"""Health of the cluster and of what runs beside it.

``health.py`` [core] brokers, partitions, disks; kept fresh by ``health_watch.py`` and exported by ``health_series.py``.
``connect.py`` [core] Kafka Connect, asked by ``connect_workers.py``. ``contact_series.py`` exports which processes have lost
Kafka. ``processes.py`` measures the hub's own processes.
"""
