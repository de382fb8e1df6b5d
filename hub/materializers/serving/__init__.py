"""Serving: rows by key, by index and by subscription, from the store alone.

routes.py                   [edge]  FastAPI: all of these over HTTP
fast_path.py                [edge]  rows by key, answered before the routes
descriptions.py             [core]  a view as lists and pages describe it
pull_query.py               [core]  filters, order, fields and cursors
read_your_writes.py         [core]  checks that a store covers a caller's write
token_waits.py              [shell] the wait for it
subscriptions.py            [shell] a snapshot, then every change, to any number of subscribers
subscription_events.py      [core]  their requests, events and positions
watcher.py                  [shell] polls the store for applies, and wakes them
held_keys.py reader_pace.py [core]  keys that a subscriber may have, and its pace
subscription_transport.py   [edge]  server-sent events and WebSocket messages
searching/                  [shell] text searches, within what the caller sees
history/                    [shell] rows as of a time, and the history of a row
row_counts.py               [shell] rows per view, counted at a bounded cost
"""
