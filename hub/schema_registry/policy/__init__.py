"""[core] Policies: rules for schemas, set on the topic tree.

``policy_rules.py`` has the rules and their order of strictness, ``label_patterns.py`` patterns as nodes of
the tree, ``policy.py`` the effective rules of a subject, ``policy_checks.py`` the violations of a schema.
"""
