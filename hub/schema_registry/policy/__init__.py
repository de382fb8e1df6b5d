"""[core] Policies: rules for schemas, set on the tree of topics. ``policy_rules.py`` the rules and what "stricter" means, ``label_patterns.py`` patterns as nodes of the tree,
``policy.py`` which rules hold for a subject, ``policy_checks.py`` where a schema breaks them.
"""
