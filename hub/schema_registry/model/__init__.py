"""[core] The registry's basic types.

``facts.py`` has the records of ``_schemas``, ``subject_names.py`` subjects in contexts, ``subjects.py`` the
topic of a subject, ``data_contract.py`` metadata and rule sets, ``levels.py`` levels of
compatibility, ``lru_cache.py`` a bounded cache.
"""
