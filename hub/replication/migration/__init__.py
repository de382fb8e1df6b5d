"""Import from MirrorMaker 2: ``mirror_maker_records.py`` [core] reads its offset syncs and checkpoints,
``alignment.py`` [core] proves how far its copies reach, ``mirror_maker_import.py`` lets a mirror continue
them.
"""
