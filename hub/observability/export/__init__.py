"""Exports of observability: ``metrics.py`` (Prometheus text format), ``objectives.py`` (observations for
alert rules), and ``routes.py`` (the dashboard and its JSON)."""
