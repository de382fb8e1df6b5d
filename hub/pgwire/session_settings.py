"""[core] Settings of a session: SET, SHOW, RESET, and their effect on a query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from hub.errors import CallerError
from hub.materializers.queries.answering.calls import LONGEST_MS, QueryBody
from hub.materializers.queries.topic_rows import DEFAULT_EVENTS, MOST_EVENTS
from hub.materializers.serving.read_your_writes import is_token
from hub.pgwire.sqlstates import PgError

SERVER_VERSION = "15.0"
# The client gets their values at the beginning, and when they change.
REPORTED: Final = (
    *("server_version", "server_encoding", "client_encoding", "application_name", "is_superuser"),
    *("session_authorization", "DateStyle", "IntervalStyle", "TimeZone", "integer_datetimes"),
    *("standard_conforming_strings", "default_transaction_read_only", "in_hot_standby"),
)
DEFAULTS: Final[Mapping[str, str]] = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "application_name": "",
    "is_superuser": "off",
    "session_authorization": "",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
    "transaction_read_only": "on",
    "transaction_isolation": "read committed",
    "default_transaction_isolation": "read committed",
    "search_path": '"$user", public, topics',
    "statement_timeout": "",
    "idle_in_transaction_session_timeout": "0",
    "lock_timeout": "0",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "max_identifier_length": "63",
    "lc_collate": "C",
    "lc_ctype": "C",
    "lc_messages": "C",
    "jit": "off",
    "row_security": "on",
    "max_index_keys": "32",
    "block_size": "8192",
    "ssl": "off",
    # of the hub
    "consistency_token": "",
    "consistent_with": "",
    "topic_events": str(DEFAULT_EVENTS),
    "topic_since": "",
}
_FIXED: Final = frozenset(("server_version", "server_encoding", "integer_datetimes", "is_superuser"))


def value_of(settings: Mapping[str, str], name: str) -> str:
    """Return the value of a setting. Raises PgError."""
    found = settings.get(name.lower(), DEFAULTS.get(name.lower()))
    if found is None:
        raise PgError("42704", f'unrecognized configuration parameter "{name[:63]}"', "SHOW ALL lists them")
    return found


def changed(settings: Mapping[str, str], name: str | None, value: str | None) -> dict[str, str]:
    """Return the settings after SET or RESET; ``value`` None: the default. Raises PgError."""
    if name is None:
        own = ("session_authorization", "statement_timeout.default")
        return {each: settings[each] for each in own if each in settings}
    name = name.lower()
    if value is None:
        return {each: kept for each, kept in settings.items() if each != name}
    if len(value) > 10_000 or len(name) > 63 or len(settings) > 200:
        raise PgError("54000", f'setting "{name[:63]}": its value is too long, or there are too many')
    if name in _FIXED:
        raise PgError("55P02", f'parameter "{name}" cannot be changed')
    return {**settings, name: _checked(name, value)}


def _checked(name: str, value: str) -> str:
    if name == "client_encoding":
        if value.upper().strip("' ").replace("-", "").replace("_", "") not in ("UTF8", "UNICODE", "SQLASCII"):
            raise PgError("0A000", f'encoding "{value[:40]}" is not supported', "UTF8 is")
        return "UTF8"
    if name == "timezone":
        if value.upper() not in ("UTC", "GMT", "ETC/UTC", "Z", "0", "+00", "+00:00", "UCT", "ZULU"):
            return "UTC"  # times are shown in UTC, with their zone, so none is wrong
        return "UTC"
    if name == "statement_timeout":
        return str(_milliseconds(value))
    if name == "consistency_token" and value and not is_token(value):
        raise PgError(
            "22023", "consistency_token is not a position", "such as orders:0:5, as a write returned it"
        )
    if name == "consistent_with" and value not in ("", "required"):
        raise PgError(
            "22023", f'consistent_with = "{value[:40]}"', "'required': all views of a query at one position"
        )
    counted = value == "all" or (value.isdecimal() and 1 <= int(value[:9]) <= MOST_EVENTS)
    if name == "topic_events" and not counted:
        raise PgError("22023", f"topic_events is a number from 1 to {MOST_EVENTS}, or all")
    if name == "default_transaction_read_only" and value.lower() in ("off", "false", "0"):
        raise PgError("25006", "the hub is read-only here")
    return value


def _milliseconds(value: str) -> int:
    match = re.fullmatch(r"\s*(\d{1,9})\s*(ms|s|min|h)?\s*", value)
    if match is None:
        raise PgError("22023", f'"{value[:40]}" is not a time', "a number of milliseconds, or such as '30s'")
    return int(match[1]) * {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000}[match[2] or "ms"]


def timeout_ms(settings: Mapping[str, str]) -> int | None:
    """Return the time limit of a query; None: the hub's own. 0 means none, which is the longest here."""
    timeout = settings.get("statement_timeout", "")
    if not timeout:
        return None
    return min(int(timeout) or LONGEST_MS, LONGEST_MS)


def body_of(settings: Mapping[str, str], sql: str, parameters: Mapping[str, Any], rows: int) -> QueryBody:
    """Return the query as ``POST /query`` would get it, with the options that were set."""
    events = settings.get("topic_events", str(DEFAULT_EVENTS))
    return QueryBody.model_construct(
        sql=sql,
        parameters=dict(parameters),
        limit=rows,
        timeout_ms=timeout_ms(settings),
        after=settings.get("consistency_token") or None,
        format="json",
        events="all" if events == "all" else int(events),
        since=settings.get("topic_since") or None,
        cut="required" if settings.get("consistent_with") == "required" else None,
    )


def startup_settings(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a startup packet, with those of ``options`` (-c name=value). Raises PgError."""
    settings: dict[str, str] = {}
    values = {name: value for name, value in parameters.items() if not name.startswith("_pq_.")}
    for each in re.findall(r"(?:-c\s*|--)([\w.]+)=((?:\\.|\S)*)", values.pop("options", "")):
        values[each[0]] = re.sub(r"\\(.)", r"\1", each[1])
    for name in ("user", "database", "replication"):
        values.pop(name, None)
    for name, value in values.items():
        try:
            settings = changed(settings, name, value)
        except CallerError as error:
            raise PgError("22023", error.message, error.hint) from None
    return settings
