"""Access control by ``access.yaml``: users, tokens and groups, and grants over the topic tree
(docs/adr/0020-access.md).

::

    request ─▶ hub/api/guard.py ─ who? ─▶ authenticate.py ─ Principal ─▶ decide.py ─ yes, or no with the missing grant
                    │                        password · token · session · proxy's header
                    └─ which action on what? hub/api/route_rules.py: a route without a rule is refused

Only the file grants access; there is no "deny". Roles are read, write, operate and admin. A subject belongs
to its topic, a dead-letter queue to the topic it comes from, a changelog to its view. The hub's own topics
(``_…``) are granted only by patterns that begin with ``_``, and to the admins of the hub. If the file cannot
be read, the last valid content applies; without one, only the hub's own processes have access.

    decide.py               [core]  grants, roles, and decisions with their reasons
    access_yaml.py          [core]  the format of access.yaml, parsed strictly
    secrets.py              [core]  scrypt and SHA-256; signed sessions
    throttle.py             [core]  failed attempts by address
    live_config.py          [shell] the file, reloaded when it changes
    open_sessions.py        [shell] the list of sessions, and session_routes.py to list and end them
    signed_out_sessions.py  [shell] ended sessions, shared by all servers of a home folder
    authenticate.py         [shell] identify the caller from a request's headers
    personal_tokens.py      [shell] tokens that people make, and personal_token_routes.py to make them
    oidc/, oidc_callers.py  tokens and logins of an OpenID Connect provider
    masking/                fields and rows that are masked, by rules over topics and views
    quotas/                 limits of principals and tenants, and the same as quotas of Kafka
    kafka_grants.py         [core]  the grants as access rules of Kafka

Other packages use only ``hub.caller``: the caller's identity and permissions.
"""  # noqa: E501
