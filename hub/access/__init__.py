"""Access control by ``access.yaml``: users, tokens and groups, and grants over the tree of topics (docs/adr/0020-access.md).

::

    request ─▶ hub/api/guard.py ─ who? ─▶ authenticate.py ─ Principal ─▶ decide.py ─ yes, or no with the missing grant
                    │                        password · token · session · proxy's header
                    └─ which action on what? hub/api/route_rules.py: a route without a rule is refused

Facts. Only the file grants; there is no "deny". Roles are read, write, operate and admin. A subject belongs to its topic, a
dead-letter queue to the topic it comes from, a changelog to its view. The hub's own topics (``_…``) are granted only by
patterns that begin with ``_``, and to the admins of the hub. If the file cannot be read, the last good content applies; if
there was none, only the hub itself gets in.

    decide.py               [core]  grants, roles, and the answer with its reason
    access_yaml.py          [core]  the format of access.yaml, read strictly
    secrets.py              [core]  scrypt and SHA-256; signed sessions
    throttle.py             [core]  failed attempts by address
    live_config.py          [shell] the file, reloaded when it changes
    signed_out_sessions.py  [shell] sessions that were ended, shared by all servers of a home folder
    authenticate.py         [shell] from a request's headers to the caller

Other packages know only ``hub.caller``: who asks, and what they may see and do.
"""
