"""Queries over HTTP: admission, the call of one query, and the forms of its answer.

routes.py       [edge] FastAPI            calls.py     [edge] one query: body, events, statement
admission.py    [edge] slots and shares   answers.py   [edge] JSON, NDJSON and CSV
"""
