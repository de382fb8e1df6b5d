"""[core] Rewriting of records.

::

    record_filter.py    leaves records out and changes them (``only``, ``mask``, ``schema_ids``)
    rules_of_schema.py  what these rules need of a schema, and what forbids them
    mask_tree.py        masks as a tree of names; mask.py and avro_masking.py replace fields in place
    reencode.py         builds new batches
    link_compression.py compresses batches that the source has uncompressed (``link.compression``)
    filter_history.py   remembers which rules made which range of the copy
"""
