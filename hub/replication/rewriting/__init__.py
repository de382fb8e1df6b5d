"""[core] Rewriting of records: ``record_filter.py`` leaves records out and changes them (``only``, ``mask``,
``schema_ids``), ``mask.py`` replaces fields in place, ``reencode.py`` builds new batches,
``filter_history.py`` remembers which rules made which range of the copy.
"""
