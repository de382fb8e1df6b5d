"""The produce gateway: records in over HTTP, and the Python producer.

routes.py              [edge]  FastAPI: Confluent's REST Proxy API v3, and a short form
produce_request.py     [core]  parse a request into records
admission.py           [core]  bounds on requests in progress
record_encoder.py      [core]  encode records with their topic's schemas
produce_batch.py       [core]  the records of a request in progress, and its answer
idempotency.py         [core]  detect repeated requests
repeated_requests.py   [shell] answers from memory, and records of earlier tries from the log
gateway_sender.py      [shell] the producer, and the thread that takes its acknowledgements
gateway.py             [shell] the gateway: workers that connect all of these
event_encoder.py       [shell] encode events from Python with their topic's schemas
producer.py            [shell] produce from Python, one event at a time
rule_dead_letters.py   [core]  dead-letter copy of a record that a data rule refused
"""
