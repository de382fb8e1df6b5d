"""Rows as of a time, and the history of one row with the events of each change, within what the caller sees.

as_of.py    [shell] read rows as of a time, or right after a write
events.py   [shell] read the events of changes from the log, as the caller may see them
sizes.py    [shell] versions and bytes of histories, measured at a bounded cost
answering.py [shell] changes of a row, and two times compared, for routes and pages
answers.py  [core]  changes as JSON: masked, with the fields that differ
routes.py   [edge]  FastAPI: history and diff of a row
"""
