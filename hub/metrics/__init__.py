"""Metrics of the hub, for Prometheus and for other packages.

``gauges.py`` builds one family of gauges from samples. ``histogram.py`` counts durations into fixed buckets.
"""
