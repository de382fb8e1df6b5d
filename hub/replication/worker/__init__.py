"""``hub mirror run``: ``worker.py`` is one of any number of workers, without a leader; ``link_tasks.py`` does
what concerns a whole link: topics, groups, verification, compaction of the map.
"""
