"""Verification: does a store equal the fold of its changelog?

``verify.py`` answers once, for ``hub view verify``. ``continuous_check.py`` answers all the time, in the applier:
``changelog_fold.py`` keeps the fold in a file, ``fingerprint.py`` [core] compares regions, ``metrics.py`` exports the result.
"""
