"""Latency from event to view over the last minutes.

``latency.py`` [core] merges the counts of appliers and pushes into rows. ``pushes.py`` [core] determines when
events were pushed. ``recorder.py`` [shell] reads the stores' records and counts. ``routes.py`` [edge] serves
``/api/latency``.
"""
