"""Quotas of access.yaml: how much each principal and each tenant may use (docs/adr/0058-quotas.md).

A principal is a user, a service's token, a webhook, or an address if nobody is signed in. A tenant is a
subtree of topics with its views. Each request counts against its principal and against the tenants of its
objects; both must have room. Rates are token buckets, which refill continuously; the others count what is
open. The server keeps the state in memory, so limits are per server.

::

    access.yaml ─▶ policy.py: limits of a principal, tenants of objects
    guard, Postgres' protocol ─▶ spending.py: spend · charge · hold ─▶ ledger.py ─▶ buckets.py
                                                                         │
                                                     page, command, metrics ◀─ usage.py

    kinds.py     [core]  the quotas: name, unit, window
    buckets.py   [core]  a token bucket and a sum over an hour, as functions of the time
    policy.py    [core]  the most specific limit of a principal; the tenant of a topic or view
    ledger.py    [core]  accounts of principals and tenants, bounded in number
    spending.py  [shell] what the current request uses; the error of a used-up quota
    shares.py    [core]  most things that one caller holds at once, such as subscriptions
    usage.py     [core]  rows of the page and the command, and series by tenant

hub/access/access_yaml.py has the format, hub/access/kafka_quotas.py the same limits as quotas of Kafka.
"""
