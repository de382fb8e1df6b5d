"""Snapshot groups: views with the same ``cut: NAME`` are read and stored at one place of the log.

``group.py`` holds the records and rules. ``coordinator.py`` moves the members' queries in steps.
``barrier.py`` decides when a store may apply rows of a group. ``in_store.py`` checks whether a store is at
the group's place.
"""
