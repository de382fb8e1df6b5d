"""Latency from event to view, over the last minutes.

``latency.py`` [core] merges what appliers and pushes counted into rows. ``pushes.py`` [core] brackets when events were
pushed. ``recorder.py`` [shell] follows the records and counts. ``routes.py`` [edge] serves ``/api/latency``.
"""
