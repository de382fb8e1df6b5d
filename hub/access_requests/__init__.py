"""Requests for a grant or for a new topic: a team asks, the owner of the node or an admin answers.

::

    request ──▶ requested ── approve ──▶ approved ── effect ──▶ done ── until ──▶ ended
                    ├────── refuse ────▶ refused      └──── no effect in time ──▶ expired
                    ├────── withdraw ──▶ withdrawn
                    └── no answer in time ──▶ expired

``_hub.access_requests`` is a compacted topic with one record per request. An approval is in the log before
its effect: a grant with ``until`` in access.yaml, or a topic in topics.yaml and in the cluster. The effect is
idempotent, so a server that was killed in between, or another one, takes it up again. A project that the
server may not write gets the difference for a pull request, and the request is done when the file has it.

Nothing has to happen at the end of a grant: access.yaml has the time, and each server reads it
(hub.access.live_config). Kafka's rules of such grants are added and removed by ``timed_rules.py``.

    model.py        [core]  a request, and the commands that change it
    owners.py       [core]  who may answer a request
    grants.py       [core]  the grant of a request in the text of access.yaml
    log.py          [shell] the log ``_hub.access_requests``; requests as JSON
    access_file.py  [shell] read and write access.yaml
    runner.py       [shell] effects, expiry, removal of old requests
    timed_rules.py  [shell] Kafka's access rules of grants with ``until``
    asking.py       [shell] make, answer and list requests, for HTTP and the page
    routes.py       [edge]  HTTP
"""
