"""The materializer process: one Spark session, one thread per view, each running its plan until the view
changes.

``runner.py`` has the process and the loop of one view. Its helpers: ``disks.py`` detects a full disk,
``file_watch.py`` detects changed files, ``stall_clock.py`` detects a stalled batch, ``late_events.py``
measures how late events were, and ``unknown_schema_ids.py`` remembers schema ids that no registry knew.
``report_thread.py`` reports to ``_hub.progress``.
"""
