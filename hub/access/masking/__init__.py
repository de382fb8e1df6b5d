"""Masks of access.yaml: which fields and rows of views and topics a principal sees (docs/adr/0045-masks.md).

::

    access.yaml masks: ─▶ nodes.py ─▶ MaskRule ┐
    principal, view or topic ──────────────────┼─▶ decision.py ─▶ hub.masking.Visibility ─▶ every way out
    fields with their tags, made of what ──────┘   (facts.py, from registry and views)

rules.py     [core]  a rule: what it covers, and the treatment of a principal
nodes.py     [core]  the format of ``masks:`` in access.yaml
facts.py     [core]  what the decision has to know of a view or topic
decision.py  [core]  the shape that a principal sees, with reasons
explain.py   [core]  a shape in words
"""
