"""Iceberg tables by pyiceberg, for every package that writes or reads some: topics (hub/lake) and views
(hub/materializers/stores).

catalog.py  [edge] the catalog of the settings, and errors of Iceberg as the hub's
files.py    [edge] properties and data files of a table; expired snapshots and unused files removed
"""
