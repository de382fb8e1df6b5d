"""Masks in the running server: their facts from registry, tree and store, and their explanation.

facts.py           [shell] fields and tags of topics, origins of views' columns
schema_fields.py   [core]  every field of a schema by path, with its tags
view_origins.py    [core]  what each column of a view is made of; None where that cannot be traced
install.py         [shell] opens the facts
explain_routes.py  [edge]  ``GET /api/access/explain``
"""
