"""Things that one person requests and a second person decides: erasures, requests for access.

Each kind is a value in a compacted control topic of its own. A decision is a pure function of the newest
values; two servers agree because only one of them can append after it read to the end.

- ``second_person.py`` [core] nobody decides what they requested themselves.
- ``decided_log.py`` [shell] values by id in a compacted topic, written after a decision on its end.
"""
