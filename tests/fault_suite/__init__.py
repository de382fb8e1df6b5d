"""Fault suite: inject faults by seed into a complete hub in two regions under load, then compare everything
with a fold of the acknowledged events in plain Python.

A *trial* (trial.py) builds a *world* (world.py): Kafka with one or three brokers, two registry nodes,
applier, Spark, a SQLite and a Postgres store, a second region behind a mirror with two workers. *Writers*
(writers.py) append events through Kafka and HTTP and note in a *journal* (journal.py) what was acknowledged.
*Readers* (readers.py) read by key with tokens, lists, SQL and a subscription, and note what was wrong.
*Faults* (faults.py and the kinds_*.py files) are injected and healed one, two or three at a time; *probes*
(probes.py) time how long each service is away after that. At the end the *checks* (checks.py,
dead_letters.py, copies.py, counts.py) compare the log, the views, every store, the subscriber's copy, the
mirrored copy and a group's positions in it record by record, and the counts of completeness with the log.

*Planted bugs* (tests/planted_bugs) are switches that make a process of the hub wrong on purpose. The suite
must go red for each.

    ./run test --faults --seed 7 --minutes 10      one seed
    ./run bench soak --seeds 20      the figures of bench/README.md

What it does not show: loss of power. The page cache survives kill -9.
"""
