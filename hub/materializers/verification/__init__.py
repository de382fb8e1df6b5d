"""Verification that a store equals the fold of its changelog.

``verify.py`` checks once, for ``hub view verify``. ``continuous_check.py`` checks continuously, in the applier:
``changelog_fold.py`` keeps the fold in a file, ``fingerprint.py`` [core] compares regions, ``metrics.py`` exports the result.
"""
