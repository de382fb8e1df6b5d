"""Verification that a store equals the fold of its changelog.

``verify.py`` checks once, for ``hub view verify``. ``continuous_check.py`` checks continuously, in the
applier, view by view (``turns.py``):
``followed_changelogs.py`` reads changelogs on, ``snapshot_comparison.py`` compares them with a store,
``changelog_fold.py`` keeps the fold in a file, ``fingerprint.py`` [core] compares regions,
``verification_status.py`` [core] is what is reported and alerted on, ``metrics.py`` exports the result.
"""
