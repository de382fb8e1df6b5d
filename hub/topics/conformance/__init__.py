"""Conformance: check each record against its topic's schema.

- ``rules.py`` [core] judge one record and keep tallies.
- ``auditor.py`` [shell] read topics, judge records, and copy violations to quarantine.
- ``routes.py`` [edge] serve the results.
"""
