"""The applier process: applies changelogs to stores, rows and positions in one transaction.

``applier.py`` applies in bounded steps. ``applier_process.py`` runs one thread per store, each with its own back-off.
``ttl.py`` [core] finds rows older than their view's TTL; ``ttl_thread.py`` writes their expiry to the log.
"""
