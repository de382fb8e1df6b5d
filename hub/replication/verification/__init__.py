"""Verification: are both sides of a mirror the same?

``verify.py`` answers once; ``continuous_check.py`` all the time, a bounded part at a time. ``comparable.py`` finds what can be
compared, ``local_records.py`` [core] what did not come by the mirror, ``digest.py`` [core] hashes stretches, and
``differences.py`` [core] lists what differs.
"""
