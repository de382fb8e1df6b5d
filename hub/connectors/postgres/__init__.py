"""Change data capture from Postgres: what the database needs, and the files that declare it.

facts.py     [edge]  what a database says of itself: tables, role, WAL, publications, slots
checks.py    [core]  facts → findings, each with the exact SQL that resolves it
new_files.py [core]  facts → additions to connectors.yaml and topics.yaml
"""
