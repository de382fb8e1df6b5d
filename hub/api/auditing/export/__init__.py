"""Export of the access log to other systems, each entry at least once.

- ``formats.py`` formats entries as syslog messages, CloudEvents batches and OTLP logs.
- ``senders.py`` makes one attempt to send a batch.
- ``exporter.py`` reads the topic, sends, and keeps the position of each target.
"""
