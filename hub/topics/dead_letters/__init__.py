"""Dead-letter records: events that a view or the conformance check rejected.

- ``model.py`` [core] dead-letter records, their states and the rules for changing them.
- ``repair.py`` [core] decode one rejected event and edit it.
- ``queue.py`` [shell] list, repair, replay and dismiss, with exactly-once replay.
- ``routes.py`` [edge] FastAPI.
"""
