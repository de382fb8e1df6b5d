"""The applier process: applies changelogs to stores, rows and positions in one transaction.

``applier_process.py`` runs one thread per store, each with its own back-off. ``applier.py`` applies in
bounded steps::

    poll ─▶ progress_feed.py  records of _hub.progress ─┐
         └▶ newest_rows.py    newest row of each key    ├▶ one transaction ─▶ followed_view.py  positions advance
            group_gate.py     which rows may be applied ┘

``followed_view.py`` decides which rows and progress of a view a step applies. ``view_tables.py`` makes tables
fit their changelogs, ``apply_traces.py`` traces batches, ``view_files.py`` has the project's views by file.
``store_reporting.py`` reports positions and latencies. ``ttl.py`` [core] finds rows older than their view's
TTL;
``ttl_thread.py`` writes their expiry to the log.
"""  # noqa: E501
