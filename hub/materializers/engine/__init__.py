"""The materializer process: one Spark session, one thread per version of a view.

::

    process.py ──starts──▶ view_thread.py ──asks──▶ life_cycle.py: (life, event) → (life, actions)
                              │ carries out            vocabulary: life_events.py
                              ├─▶ plans/             plan: definition, schemas, topics, generation
                              ├─▶ running_query.py   start, watch and stop Spark's query
                              ├─▶ batch_reports.py   committed batches → progress
                              └─▶ failures.py        what was raised → a failure that the life cycle knows

``stall_watch.py`` with ``stall_clock.py`` detects a stalled batch, ``disks.py`` a full disk,
``file_watch.py`` changed files. ``removal.py`` removes dropped versions, ``report_thread.py`` reports to
``_hub.progress``, and ``parts.py`` has what all threads share.
"""
