"""Isolation: a view that ends Spark runs in a process of its own (docs/adr/0025-isolated-views.md).

``policy.py`` [core] decides from the journal of crashes which view is to blame. ``processes.py`` [shell]
keeps the journal on disk and runs one process for each isolated view.
"""
