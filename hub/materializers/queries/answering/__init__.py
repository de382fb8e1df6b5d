"""One query of a caller, from admission to its rows: what every way in shares (HTTP, Postgres' protocol).

service.py    [shell] tokens, cuts, slots and cancellation around a call
calls.py      [edge]  one query: body, events, statement      admission.py  [edge] slots and shares
"""
