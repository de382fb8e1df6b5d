"""Schemas in git: ``plan.py`` [core] a folder of schemas, and the plan from it to a registry; ``rules.py`` [core] policies
checked before; ``apply.py`` the plan carried out. ``diff.py`` [core] describes changes, ``search.py`` [core] finds schemas,
``infer.py`` [core] proposes one from ``samples.py``.
"""
