"""Python client of the hub: write events, read views, subscribe to changes; for threads (``Hub``) and tasks
(``AsyncHub``).

::

    from hub.client import Hub

    hub = Hub("http://127.0.0.1:8088")
    token = hub.produce("crm.customers", {"customer_id": "C-1", "name": "Ada"})
    hub.get("customer_360", "C-1", after=token)          # includes that write
    for change in hub.subscribe("customer_360"): ...     # endless, reconnects by itself

One core without sockets, two thin shells around it::

    calls.py       [core] a call as a generator of requests: retries, tokens, pages
    requests.py    [core] requests, events, replies, headers and pauses as values
    answers.py     [core] pages, results and positions from replies
    history.py     [core] rows of the past: changes of a row, and its difference between two times
    produce_bodies.py [core] bodies of produce requests
    changes.py     [core] typed changes, folded into rows; where to resume, which were delivered already
    receipts.py    [core] acknowledged events, counted for the completeness check
    errors.py      [core] the errors, and how an answer becomes one
    transport.py        [edge] httpx and websockets
    sync.py aio.py [shell] the calls waited for, and awaited
    aggregates.py  [shell] a key with its version: its state by a view, and appends on it
    copies.py      [shell] a copy of a view that a thread keeps
    outbox.py           outbox and inbox of an application's own database

Except for ``outbox.py``, the client imports none of the server's packages, and loads its libraries when a hub
is created.
"""

from hub.client.aggregates import Aggregate, AsyncAggregate
from hub.client.aio import AsyncChanges, AsyncCopy, AsyncHub
from hub.client.answers import ArrowResult, Column, Page, Result, TranslatedOffset
from hub.client.changes import Behind, Change, Covered, Delete, Reset, Snapshot, Synced, Upsert
from hub.client.copies import Copy
from hub.client.errors import NotCovered, Reason, Refused, Unreachable, VersionConflict
from hub.client.history import ChangeEvent, ChangeEvents, FieldChange, RowChange, RowDiff
from hub.client.requests import DECLARED, Event, Row
from hub.client.sync import Changes, Hub
from hub.errors import CallerError, Conflict, Gone, HubError, NotFound, PeerError
from hub.record import Positions

__all__ = [
    "DECLARED",
    "Aggregate",
    "ArrowResult",
    "AsyncAggregate",
    "AsyncChanges",
    "AsyncCopy",
    "AsyncHub",
    "Behind",
    "CallerError",
    "Change",
    "ChangeEvent",
    "ChangeEvents",
    "Changes",
    "Column",
    "Conflict",
    "Copy",
    "Covered",
    "Delete",
    "Event",
    "FieldChange",
    "Gone",
    "Hub",
    "HubError",
    "NotCovered",
    "NotFound",
    "Page",
    "PeerError",
    "Positions",
    "Reason",
    "Refused",
    "Reset",
    "Result",
    "Row",
    "RowChange",
    "RowDiff",
    "Snapshot",
    "Synced",
    "TranslatedOffset",
    "Unreachable",
    "Upsert",
    "VersionConflict",
]
