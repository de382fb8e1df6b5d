"""Status of mirrors: ``mirror_status.py`` [core] state, lag, gaps, groups and RPO as one value; ``source_ends.py`` how far sources
reach now; ``metrics.py`` Prometheus; ``objectives.py`` [core] observations for alerts.
"""
