"""Numbers about the hub, as Prometheus and other packages take them.

``gauges.py`` builds one family of gauges from samples. ``histogram.py`` counts durations into fixed buckets.
"""
