"""Events in and out of an application's own database transaction: outbox and inbox.

::

    from hub.client.outbox import Inbox, Outbox

    outbox = Outbox("http://127.0.0.1:8088")
    outbox.publish(session, "shop.orders", "o-1", {"order_id": "o-1"})     # in the session's transaction

Unlike the rest of the client it imports the registry's codecs: the application encodes the events itself.
"""

from hub.outbox.inbox import AsyncInbox, Inbox
from hub.outbox.publisher import AsyncOutbox, Outbox

__all__ = ["AsyncInbox", "AsyncOutbox", "Inbox", "Outbox"]
