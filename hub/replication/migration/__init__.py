"""Import from MirrorMaker 2.

::

    mirror_maker_records.py  [core]  its offset syncs and checkpoints
    alignment.py             [core]  how far its copies reach, proven record by record
    import_plan.py           [core]  what was found, and what becomes of each partition
    mirror_maker_import.py   [shell] the inspection
    import_writing.py        [shell] maps, checkpoints and groups, from which a mirror continues
"""
