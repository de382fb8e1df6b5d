"""Health of the cluster, of Kafka Connect, and of the hub's own processes.

``health.py`` [core] models brokers, partitions and disks; ``health_watch.py`` refreshes it and
``health_series.py`` exports it. ``connect.py`` [core] models Kafka Connect; ``connect_workers.py`` polls it.
``contact_series.py`` exports which processes have lost Kafka. ``processes.py`` measures the hub's own
processes.
"""
