"""The way in for records.

routes.py              [edge]  FastAPI: Confluent's REST Proxy API v3, and a short form
produce_request.py     [core]  a request split into records
gateway.py             [shell] records encoded, bounded, written, acknowledged
producer.py            [shell] the same from Python, one event at a time
idempotency.py         [core]  requests that come twice
rule_dead_letters.py   [core]  the copy of a record that a data rule refused
"""
