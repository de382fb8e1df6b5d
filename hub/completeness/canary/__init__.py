"""Canaries: numbered records, one a second, whose arrival shows that a path is open.

``probes.py`` decides what became of each. ``filters.py`` finds headers that pass a mirror's filter. ``runner.py`` sends
and reads them in threads. ``routes.py`` serves ``/api/canary`` and its series.
"""
