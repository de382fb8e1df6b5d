"""Isolation: a view that ends Spark runs in a process of its own (docs/adr/0025-isolated-views.md).

``policy.py`` [core] decides from the journal of crashes which view is to blame. ``processes.py`` [shell]
keeps the journal on disk and runs one process for each isolated view (``isolated_process.py``);
``thread_marks.py`` [edge] has the marks on disk that tell what a process was doing.
"""
