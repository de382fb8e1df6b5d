"""What observability offers to others: ``metrics.py`` Prometheus' text format, ``objectives.py`` observations for alert rules,
``routes.py`` the dashboard and the same facts as JSON.
"""
