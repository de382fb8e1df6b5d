"""Conformance: check each record against its topic's schema.

- ``rules.py`` [core] judge one record and keep tallies.
- ``auditor.py`` [shell] read topics, judge records, and copy violations to quarantine.
- ``schema_ids.py`` [shell] which schema ids belong to a topic, and their checks.
- ``results.py`` [shell] the results, followed by the server.
- ``routes.py`` [edge] serve the results.
"""
