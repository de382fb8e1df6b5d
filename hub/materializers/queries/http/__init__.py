"""Queries over HTTP: the routes of queries, and the forms of their answers.

routes.py       [edge] FastAPI            answers.py  [edge] JSON, NDJSON and CSV
arrow.py        [edge] Arrow streams      push_routes.py  [edge] push queries
"""
