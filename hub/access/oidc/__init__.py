"""Sign-in by an OpenID Connect provider: bearer tokens of services, and login of people
(docs/adr/0038-identity.md).

::

    Bearer eyJ… ─▶ tokens.py (form, key, signature, claims) ─▶ claims.py (name and groups) ─▶ Principal
                        │ kid
                        └─▶ provider_keys.py: discovery and JWKS of the issuer, cached, refreshed within bounds

    /sign-in/oidc ─▶ the issuer's page ─▶ /sign-in/oidc/callback ─ login.py (state, nonce, PKCE) ─▶ a session

Only signatures of public keys are accepted, with the algorithms that access.yaml lists. While the issuer
cannot be reached, cached keys remain valid for a day; without any, every token is refused.

    settings.py       [core]  the section ``oidc:`` of access.yaml
    claims.py         [core]  checks of claims; name and groups of their owner
    tokens.py         [core]  signed tokens; the only module that imports joserfc
    key_refresh.py    [core]  when the issuer's keys are fetched
    provider_keys.py  [shell] the issuer's endpoints and keys
    login.py          [shell] authorization code with PKCE
"""  # noqa: E501
