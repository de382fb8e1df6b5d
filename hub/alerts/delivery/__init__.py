"""Delivery of notifications.

- ``payloads.py`` formats a notification for its channel.
- ``notification_queues.py`` gives each channel a bounded queue, and retries with growing pauses.
- ``channels.py`` makes one attempt over HTTP or SMTP.
"""
