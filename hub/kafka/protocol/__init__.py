"""Kafka's protocol below the client libraries, for mirrors, completeness and the read proxy.

primitives.py       [core] numbers, texts, arrays, tagged fields; request headers
messages.py         [core] Fetch and Produce
record_batch.py     [core] record batches as bytes: headers, records, a batch made ready to be produced again
unpacked_size.py    [core] how many bytes a batch unpacks to, found within a bound
bounded_frames.py   [core] broker answers as the read proxy forwards them
compression.py      [edge] cramjam: gzip, snappy, lz4, zstd in Kafka's framings
client_quotas.py    [edge] client quotas of users: read, set, removed
sockets.py          [edge] a socket to one broker, with TLS and SASL
broker_client/      [edge] one connection, the brokers of a cluster, transactions
"""
