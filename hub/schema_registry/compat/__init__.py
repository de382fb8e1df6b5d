"""[core] Compatibility of schemas under one subject. ``resolved_schema.py`` is a schema with everything it
references; ``compatibility.py`` decides whether it may follow others, and names the field, the rule, the
two types and the smallest fix.
"""
