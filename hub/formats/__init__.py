"""Durable formats: versions of the hub's state, and how this release handles each.

State outlives the release that wrote it. Every format has a name and a version in one table; state names the
version that it is of, and every reader asks one function whether it may read on. State without a version is
of version 1: releases before this mechanism wrote it.

    table.py         [core] the formats: name, place, version, oldest readable version
    verdicts.py      [core] read, upgrade, rebuild or refuse; the refusal as an error with the way out
    stamps.py        [core] a noted version with the release that wrote it, as JSON
    home.py          [edge] versions of the files in a home: ``<home>/formats/<name>.json``
    topics.py        [edge] versions of the records in a cluster: the topic ``_hub.formats``
    deprecations.py  [edge] keys of YAML files that a later release removes
    fields.py        [core] records of a newer release: unknown fields are ignored

A process notes the versions that it writes before it writes anything (``admit`` in home.py and topics.py).
Parts of the state that stand alone name their version themselves: a store in its progress records, a
checkpoint in ``plan.json``, a backup in its head.
"""
