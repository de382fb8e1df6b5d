"""Webhooks in: signed requests of other systems become events of topics.

::

    POST /hooks/NAME ─▶ signatures: is it the sender's? ─▶ deliveries: events, key, id ─▶ gateway ─▶ topic

    webhooks_file.py  [edge]  webhooks.yaml, reloaded when it changes
    signatures.py     [core]  signatures of GitHub, Stripe, Slack, Shopify, Standard Webhooks and others
    deliveries.py     [core]  the events of a request, their key, and the id by which a repeated one is known
    counts.py         [core]  counts of requests, by webhook and outcome
    routes.py         [edge]  the route
"""
