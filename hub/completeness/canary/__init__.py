"""Canaries: numbered records, one per second, that show whether a route is open.

- ``probes.py`` [core] determine the outcome of each canary.
- ``filters.py`` [core] find headers that pass a mirror's record filter.
- ``runner.py`` [shell] send and read canaries in threads.
- ``routes.py`` [edge] serve ``/api/canary`` and its series.
"""
