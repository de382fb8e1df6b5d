"""Schemas in git. ``plan.py`` [core] reads a folder of schemas and plans its changes to a registry;
``rules.py`` [core] checks policies before; ``apply.py`` executes the plan. ``diff.py`` [core] describes
changes, ``search.py`` [core] finds schemas, ``infer.py`` [core] proposes a schema from ``samples.py``.
"""
