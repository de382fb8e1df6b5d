"""The engine of one shard: batches of a fixed set of partitions, from the source into the target, exactly
once.

Decisions, each a pure ``next_…(state, event)``: ``recovery.py`` [core] what follows an error, ``cursor.py``
[core] what an answer of the source means, ``atomic_release.py`` [core] what may become visible now.

``shard_start.py`` prepares the checkpoints. ``batch_engine.py`` is the loop of one transaction after the
other: ``resume.py`` gives positions, ``fetcher.py`` reads, ``payloads.py`` [core] makes batches,
``target_transaction.py`` writes and commits; their state is in ``shard_state.py`` [core]. They reach both
clusters through the port of ``connection/``, which the tests also implement in memory. ``shard_thread.py``
runs an engine in a thread; ``rates.py`` [core] measures lag and rates; ``long_link.py`` [core] sizes requests
and transactions by the measured round trip.
"""
