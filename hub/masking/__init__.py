"""Masks as values: a caller's view of fields and rows (docs/adr/0045-masks.md).

The rules are in access.yaml and decided in ``hub.access.masking``; this package is what every way out
applies.

shape.py   [core]  the treatment of each field of a view or topic, and which of its rows are seen
values.py  [core]  one value, treated
"""
