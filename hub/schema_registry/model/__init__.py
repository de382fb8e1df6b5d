"""[core] The registry's vocabulary: ``facts.py`` the records of ``_schemas``, ``subject_names.py`` subjects in contexts,
``subjects.py`` from a subject to its topic, ``data_contract.py`` metadata and rule sets, ``lru_cache.py`` a bounded cache.
"""
