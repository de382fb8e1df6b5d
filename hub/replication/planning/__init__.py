"""[core] Plans: what has to exist at the target before records can flow, and what forbids it.

``plan.py`` compares topics and settings three ways. ``schema_plan.py`` does the same for subjects.
``write_rights.py`` moves write permissions when ownership changes.
"""
