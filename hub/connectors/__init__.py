"""Connectors: systems that write into the log and read from it, through Kafka Connect, declared in git.

``connectors.yaml`` names connectors; the hub renders their settings, lets Connect validate them, and makes
Connect's cluster like the file. Where the project names no other cluster, ``hub up`` runs a worker.

Flow::

    connectors.yaml ─▶ connectors_file ─▶ rendering (kinds, topics.yaml) ─┐
    Connect's REST API ─▶ connect_client ─▶ actual connectors ────────────┴▶ plan ─▶ apply_plan ─▶ connect_client
                                  └─▶ validation: Connect's findings at their line of the file

    operations.py       [shell] for web pages
    kinds.py            [core]  short kinds and converters          plugins.py         [edge]  jars of plugins
    connectors_file.py  [core]  the file, its places, its secrets   worker.py          [edge]  the embedded worker
    rendering.py        [core]  settings for Connect                connect_client.py  [edge]  REST
    plan.py             [core]  steps, refusals, drift              apply_plan.py      [shell] plan and apply
    validation.py       [core]  errors of Connect → lines of the file
    truncations.py      [core]  deletions for rows that a TRUNCATE removed
"""  # noqa: E501
