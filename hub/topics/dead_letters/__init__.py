"""Dead-letter records: events that a view or the conformance check rejected.

Flow of an action: ``queue.py`` opens the writer, ``reader.py`` reads, ``event_builder.py`` builds and checks
the events, ``actions.py`` decides what is written, and ``queue.py`` appends it in transactions.

- ``model.py`` [core] dead-letter records, their states and the actions taken.
- ``record_format.py`` [core] parse records of dead-letter topics and of ``_hub.dlq``.
- ``actions.py`` [core] allowed actions, and the plan of many replays.
- ``listing.py`` [core] merge, page, count and show dead-letter records.
- ``repair.py`` [core] decode one rejected event and edit it.
- ``encoder.py`` [core] encode repaired events with the schemas of their topics.
- ``event_builder.py`` [core] build and check events that return to their topics.
- ``reader.py`` [shell] bounded reads.
- ``queue.py`` [shell] list, repair, replay and dismiss, with exactly-once replay.
- ``routes.py`` [edge] FastAPI.
"""
