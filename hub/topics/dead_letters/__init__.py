"""Dead-letter records: events that a view or the auditor could not take.

``model.py`` [core] their values. ``repair.py`` [core] one event examined and changed. ``queue.py`` [shell] listed, replayed and
dismissed, exactly once. ``routes.py`` [edge] FastAPI.
"""
