"""Snapshot groups: views with the same ``cut: NAME`` are read and stored at one place of the log.

``group.py`` holds the records and rules. ``members.py`` has the ports to a view's query. ``coordinator.py``
moves the members' queries in steps. ``barrier.py`` decides when a store may apply rows of a group.
``in_store.py`` checks whether a store is at the group's place.

A view with ``consistent_with: transaction`` is a group of its own, whose places divide no source transaction.
It never runs on its own: while its group does not move, it reads nothing, and a store applies none of its
rows.
"""
