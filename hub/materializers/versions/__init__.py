"""Versions of a view: a changed view is built in parallel, compared with the served one, swapped in or rolled
back.

``versions.py`` [core] has their state and events, ``transitions.py`` [core] decides the next state, and
``version_records.py`` [core] is their form in the log. ``comparison.py`` [core] compares two versions.
``version_log.py`` [shell] keeps the state in ``_hub.progress`` and is the only place that changes it.
``routes.py`` [edge] serves the commands.
"""
