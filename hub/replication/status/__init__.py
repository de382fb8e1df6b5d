"""Status of mirrors.

::

    mirror_status.py   [core] state, lag, gaps, groups and RPO as one value
    mirror_rows.py     [core] its rows by mirror; partition_rows.py [core] one partition
    source_ends.py            present ends of sources
    metrics.py                Prometheus
    objectives.py      [core] observations for alerts
"""
