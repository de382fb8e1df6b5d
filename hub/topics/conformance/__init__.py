"""Conformance: does each record satisfy its topic's schema?

``rules.py`` [core] judges one and tallies; ``auditor.py`` [shell]
reads topics, judges, and copies violations to quarantine; ``routes.py`` [edge] serves the result.
"""
