"""Verification: compares both sides of a mirror.

``verify.py`` compares once; ``continuous_check.py`` all the time, a bounded part at a time.
``committed_records.py`` [edge] reads a range, ``comparable.py`` finds what can be compared,
``local_records.py`` [core] which records did not come by the mirror, ``digest.py`` [core] hashes ranges, and
``differences.py`` [core] lists what differs.
"""
