"""Who may do what, by ``access.yaml``: users, tokens and groups, and grants over the tree of topics (docs/adr/0020-access.md).

::

    request ─▶ hub/api/guard.py ─ who? ─▶ authenticate.py ─ Principal ─▶ decide.py ─ yes, or no with the missing grant
                    │                        password · token · session · proxy's header
                    └─ which action on what? route_rules.py: a route without a rule is refused

Facts. Nothing is granted that the file does not grant; there is no "deny". Roles are read, write, operate and admin. A subject
belongs to its topic, dead letters to where they are from, a changelog to its view; the hub's own topics (``_…``) only to
patterns that begin with ``_``, and to the admins of the hub. A file that cannot be read leaves what held; where nothing held, nobody but the hub's own
processes gets in.

    decide.py        [core]  grants, roles, and the answer with its reason
    files.py         [core]  access.yaml, strictly
    secrets.py       [core]  scrypt and SHA-256; signed sessions
    throttle.py      [core]  failed attempts by address
    live.py          [shell] the file as it is now
    authenticate.py  [shell] from a request's headers to who asks

``hub.caller`` is what everybody else knows of it: who asks, and whether they may.
"""
