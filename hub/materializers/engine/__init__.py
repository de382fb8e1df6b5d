"""The materializer process: one Spark session, one thread a view, each running its plan until the view changes.

``runner.py`` is the process and the loop of one view. It asks: ``disks.py`` whether a disk is full, ``file_watch.py`` whether
files changed, ``stall_clock.py`` whether a batch still moves, ``late_events.py`` how late events were, and
``unknown_schema_ids.py`` which schema ids no registry knew. ``report_thread.py`` reports to ``_hub.progress``.
"""
