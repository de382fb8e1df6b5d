"""The produce gateway: records in over HTTP, and the Python producer.

routes.py              [edge]  FastAPI: Confluent's REST Proxy API v3, and a short form
produce_request.py     [core]  parse a request into records
gateway.py             [shell] encode records, write them within bounds, report acknowledgements
producer.py            [shell] produce from Python, one event at a time
idempotency.py         [core]  detect repeated requests
rule_dead_letters.py   [core]  dead-letter copy of a record that a data rule refused
"""
