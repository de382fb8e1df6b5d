"""[core] Offset maps: where a source record is in the target, exactly, and the reverse.

``offset_map.py`` is a table of runs. ``two_way_offset_map.py`` joins both directions of a topic that was
written on two sides. ``checkpoint.py`` defines the records a mirror writes next to its copies.
``imported_copy.py`` notes how far a copy that another tool made reaches.
"""
