"""[core] The closed list of actions and results of the access log."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class LoggedAction(StrEnum):
    """Kinds of logged actions. ``MEANINGS`` describes each."""

    sign_in = "sign-in"
    sign_out = "sign-out"
    request = "request"
    session_end = "session.end"
    token_create = "token.create"
    token_use = "token.use"
    token_revoke = "token.revoke"
    topic_change = "topic.change"
    group_change = "group.change"
    schema_change = "schema.change"
    key_change = "key.change"
    key_read = "key.read"
    connector_change = "connector.change"
    mirror_change = "mirror.change"
    view_change = "view.change"
    access_change = "access.change"
    access_request = "access.request"
    dead_letter_change = "dead-letter.change"
    alert_change = "alert.change"
    outbox_change = "outbox.change"
    lake_change = "lake.change"
    sink_change = "sink.change"
    hub_change = "hub.change"
    backup = "backup"
    restore = "restore"
    erase = "erase"
    records_write = "records.write"
    sql = "sql"
    masked_read = "masked.read"
    export = "export"
    log_open = "log.open"
    log_checkpoint = "log.checkpoint"
    log_close = "log.close"
    log_lost = "log.lost"


MEANINGS: Final[Mapping[LoggedAction, str]] = {
    LoggedAction.sign_in: "A person or program signed in, or failed to.",
    LoggedAction.sign_out: "A person signed out.",
    LoggedAction.request: "A read that was refused (401, 403, 429).",
    LoggedAction.session_end: "A session was ended by somebody.",
    LoggedAction.token_create: "A token was made.",
    LoggedAction.token_use: "A token was used; once in ten minutes for a token and an address.",
    LoggedAction.token_revoke: "A token was revoked.",
    LoggedAction.topic_change: "Topics, their settings or schemas were applied.",
    LoggedAction.group_change: "Positions of a consumer group were reset.",
    LoggedAction.schema_change: "Schemas, their levels or modes were registered, changed or deleted.",
    LoggedAction.key_change: "Keys of field encryption were made, changed, rotated or deleted.",
    LoggedAction.key_read: "A data encryption key was read, as clients do that encrypt or decrypt fields.",
    LoggedAction.connector_change: "Connectors were applied, paused, resumed, restarted or reset.",
    LoggedAction.mirror_change: "Mirrors were applied, paused, dropped, or ownership moved.",
    LoggedAction.view_change: "A view was made, dropped, or its served version changed.",
    LoggedAction.access_change: "Kafka's access rules were changed.",
    LoggedAction.access_request: "A request for access was made or answered, took effect, or ended.",
    LoggedAction.dead_letter_change: "Dead-letter records were repaired, replayed or dismissed.",
    LoggedAction.alert_change: "Silences were made or ended, or a channel was tested.",
    LoggedAction.outbox_change: "An outbox was made, retried or forgotten.",
    LoggedAction.lake_change: "Iceberg tables were maintained.",
    LoggedAction.sink_change: "A sink was paused or resumed, or a record was sent to try it.",
    LoggedAction.hub_change: "Another change.",
    LoggedAction.backup: "Topics, schemas and groups were saved, or saved runs removed.",
    LoggedAction.restore: "A backup was restored.",
    LoggedAction.erase: "Data of a person was erased.",
    LoggedAction.records_write: "Records were written over HTTP or by the command line.",
    LoggedAction.sql: "A SQL statement ran; without its literals, with its tables.",
    LoggedAction.masked_read: "An object with masks was read.",
    LoggedAction.export: "Rows or messages were read as a list or a stream.",
    LoggedAction.log_open: "A process began a chain of records.",
    LoggedAction.log_checkpoint: "A signed checkpoint of a chain.",
    LoggedAction.log_close: "A process ended its chain; signed.",
    LoggedAction.log_lost: "Entries of reads that could not be kept; `count` says how many.",
}


class Outcome(StrEnum):
    """``started``: the change was about to begin. Its second record has one of the others."""

    started = "started"
    ok = "ok"
    denied = "denied"
    failed = "failed"
