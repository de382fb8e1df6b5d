"""The engine of one shard: batches of a fixed set of partitions, from the source into the target, exactly
once.

``batch_engine.py`` fetches, rewrites and writes in transactions. ``atomic_release.py`` [core] keeps a source
transaction whole. ``rates.py`` [core] measures lag and rates. ``shard_thread.py`` runs an engine in a thread.
"""
