"""Status of mirrors: ``mirror_status.py`` [core] state, lag, gaps, groups and RPO as one value;
``partition_rows.py`` [core] its rows; ``source_ends.py`` the present ends of sources; ``metrics.py``
Prometheus; ``objectives.py`` [core] observations for alerts.
"""
