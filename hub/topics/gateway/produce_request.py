"""[core] Parse a produce request into records, and build the lines of its answer.

Formats and names are those of Confluent's REST Proxy, API v3 ("Records"). Invalid JSON ends the parsing of a
body, unless its content type is lines (application/x-ndjson): then each line is parsed on its own.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal

import orjson

from hub.caller import TooMany
from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError, did_you_mean, nearest
from hub.record import Headers
from hub.schema_registry.formats.exact_json import dumped, loaded
from hub.times import ms_of
from hub.topics.tree.key_fields import at_path

MOST_RECORD_BYTES = 1 << 20
MOST_REQUEST_BYTES = 16 << 20
MOST_RECORDS = 10_000
MOST_HEADERS = 100
PRODUCER_HEADER = "hub.producer"
IDEMPOTENCY_HEADER = "hub.idempotency"

_LINE = re.compile(rb"[^\n]+")
_MOST_GUESSES = 200  # fields compared with the key's name for a hint
_LATEST_MS = 253_402_300_799_999  # the end of the year 9999
_RECORD_FIELDS = ("partition_id", "headers", "key", "value", "timestamp", "original_size")
_DATA_FIELDS = (
    "type",
    "data",
    "schema_id",
    "schema_version",
    "subject",
    "subject_name_strategy",
    "schema",
)
# REST Proxy type of data with a schema → schema format in the registry.
FORMATS: Mapping[str, str] = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}

Type = Literal["JSON", "STRING", "BINARY", "AVRO", "JSONSCHEMA", "PROTOBUF"]


class Malformed(CallerError):
    """Body that cannot be parsed as a request."""

    code = "HUB-1322"


class Unprocessable(CallerError):
    """Valid record that cannot be written as requested."""

    code = "HUB-1320"


class TooLarge(CallerError):
    """Record or request over its size limit."""

    code = "HUB-1321"


class Busy(PeerError):
    """Too many requests in progress; nothing of this request was written."""

    code = "HUB-3044"


STATUS_OF: tuple[tuple[type[HubError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (Malformed, 400),
    (TooLarge, 413),
    (TooMany, 429),
    (CallerError, 422),
    (Busy, 429),
    (PeerError, 503),
)


def status_of(error: HubError) -> int:
    """Return the HTTP status for an error of this API; 500 for internal errors."""
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


@dataclass(frozen=True, slots=True)
class Data:
    """Key or value of a requested record. ``type`` None: the topic's schema, or the named one, decides.
    ``data`` None: null.
    """

    type: Type | None = None
    data: Any = None
    schema_id: int | None = None
    schema_version: int | None = None
    subject: str | None = None


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """One record to write. ``size`` is the size of its JSON in bytes."""

    key: Data
    value: Data
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    size: int = 0


# ---- the body


def records_of(
    body: bytes, *, lines: bool, form: Literal["record", "event"], key_field: str | None
) -> list[RecordRequest | HubError]:
    """Parse a body into its records, with an error in place of each invalid one. ``form`` and ``key_field``
    as in ``ProduceRequest``. Raises TooLarge for too many records, Malformed for none.
    """
    records: list[RecordRequest | HubError] = []
    for each in _elements(body, lines, form):
        if len(records) >= MOST_RECORDS:
            raise TooLarge(
                f"the request has more than {MOST_RECORDS} records; none was written", hint="send several"
            )
        if isinstance(each, CallerError):
            records.append(each)
            continue
        value, size = each
        try:
            records.append(record_of(value, size) if form == "record" else event_of(value, size, key_field))
        except HubError as error:
            records.append(error)
    if not records:
        raise Malformed("the body has no record")
    return records


def _elements(
    body: bytes, lines: bool, form: Literal["record", "event"]
) -> Iterator[tuple[Any, int] | CallerError]:
    """``values_of()``, with the elements of each array of events."""
    for each in values_of(body, lines=lines):
        if form == "event" and not isinstance(each, CallerError) and isinstance(each[0], list):
            yield from ((value, len(as_json(value, "value"))) for value in each[0])
        else:
            yield each


def values_of(body: bytes, *, lines: bool) -> Iterator[tuple[Any, int] | CallerError]:
    """Yield (JSON value, size in bytes) for each value of a body, newline-separated or concatenated, and a
    CallerError for each invalid one. Parsing ends at invalid JSON, except with ``lines``.
    """
    if not lines:
        try:
            yield loaded(body), len(body)
            return
        except orjson.JSONDecodeError:
            pass  # several values, or none
    if lines:
        yield from map(_parsed, _lines(body))
        return
    if b"\n" in body:
        # One record over the limit proves that there are too many; parsing the rest would only use memory.
        values = [_parsed(part) for part in islice(_lines(body), MOST_RECORDS + 1)]
        if values and not any(isinstance(each, CallerError) for each in values):
            yield from values
            return
    yield from _concatenated(body)


def _lines(body: bytes) -> Iterator[bytes]:
    """Yield the lines that are not blank."""
    return (part for found in _LINE.finditer(body) if (part := found.group()).strip())


def _parsed(part: bytes) -> tuple[Any, int] | CallerError:
    try:
        return loaded(part), len(part)
    except orjson.JSONDecodeError as error:
        return Malformed(f"the record is not JSON: {error}")


def _concatenated(body: bytes) -> Iterator[tuple[Any, int] | CallerError]:
    """Yield concatenated JSON values. Python's parser finds the end of each value; the stricter orjson
    validates it.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        yield Malformed(f"the body is not UTF-8: {error.reason} at byte {error.start}")
        return
    decoder, at, number = json.JSONDecoder(), 0, 0
    while True:
        while at < len(text) and text[at] in " \t\r\n":
            at += 1
        if at == len(text):
            if number == 0:
                yield Malformed("the body has no record")
            return
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            reason = "it nests too deep" if isinstance(error, RecursionError) else str(error)
            yield Malformed(
                f"record {number} of the body is not JSON: {reason}",
                hint=f"{number} records before it were read, and nothing after it",
            )
            return
        yield _parsed(text[at:end].encode())
        at, number = end, number + 1


# ---- a record


def record_of(value: Any, size: int) -> RecordRequest:
    """Parse a record in the format of API v3. Raises CallerError naming the field."""
    if size > MOST_RECORD_BYTES:
        raise TooLarge(f"the record has {size} bytes, {MOST_RECORD_BYTES} are allowed")
    if not isinstance(value, dict):
        raise Unprocessable("the record is not a JSON object", hint='{"value": {"data": …}}')
    _require_known_fields(value, _RECORD_FIELDS, "the record")
    partition = value.get("partition_id")
    if partition is not None and (type(partition) is not int or not 0 <= partition < 1 << 31):
        raise Unprocessable(f"partition_id: {_shortened(partition)} is not a number of a partition")
    return RecordRequest(
        _data_of(value.get("key"), "key"),
        _data_of(value.get("value"), "value"),
        headers_of(value.get("headers")),
        partition,
        timestamp_of(value.get("timestamp")),
        size,
    )


def event_of(value: Any, size: int, key_field: str | None) -> RecordRequest:
    """Parse an event in the short form: the JSON value is the event, ``key_field`` is the name or dotted path
    of its key. Raises CallerError.
    """
    if size > MOST_RECORD_BYTES:
        raise TooLarge(f"the event has {size} bytes, {MOST_RECORD_BYTES} are allowed")
    if not isinstance(value, dict):
        raise Unprocessable("the event is not a JSON object")
    key = None
    if key_field is not None:
        key = at_path(value, key_field)
        if type(key) is int:
            key = str(key)
        if not isinstance(key, str) or not key:
            guess = nearest(key_field, islice(value, _MOST_GUESSES))
            raise Unprocessable(
                f'the event\'s key "{key_field}" is {_shortened(key)}; a text or an integer is needed',
                hint=f'did you mean "{guess}"?' if guess and key is None else None,
            )
    return RecordRequest(Data("STRING", key), Data(None, value), size=size)


def headers_of(headers: Any) -> Headers:
    """Parse the headers ``[{"name", "value": base64}]``; a null value becomes an empty one. Raises
    Unprocessable.
    """
    if headers is None:
        return ()
    if not isinstance(headers, list) or len(headers) > MOST_HEADERS:
        raise Unprocessable(f"headers: a list of at most {MOST_HEADERS} is needed")
    found: list[tuple[str, bytes]] = []
    for number, each in enumerate(headers):
        name = each.get("name") if isinstance(each, dict) else None
        if not isinstance(name, str) or not name:
            raise Unprocessable(f"headers[{number}]: has no name")
        if "\0" in name:  # the producer would truncate the name there
            raise Unprocessable(f"headers[{number}]: the name has a null character")
        if name.startswith("hub.") and name != PRODUCER_HEADER:
            raise Unprocessable(
                f'headers[{number}]: "{name[:80]}": names that begin with "hub." are the hub\'s'
            )
        value = each.get("value")
        found.append((name, b"" if value is None else _base64(value, f"headers[{number}].value")))
    return tuple(found)


def timestamp_of(timestamp: Any) -> int | None:
    """Parse an RFC 3339 text or epoch milliseconds into epoch milliseconds. Raises Unprocessable."""
    if timestamp is None:
        return None
    milliseconds: int | None = timestamp if type(timestamp) is int else None
    if isinstance(timestamp, str):
        try:
            moment = datetime.fromisoformat(timestamp)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            milliseconds = ms_of(moment)
    if milliseconds is None or not 0 <= milliseconds <= _LATEST_MS:
        raise Unprocessable(
            f"timestamp: {_shortened(timestamp)} is not a time of the years 1970 to 9999",
            hint="2024-02-29T12:30:00Z, or milliseconds since 1970",
        )
    return milliseconds


def _data_of(fields: Any, part: str) -> Data:
    if fields is None:
        return Data()
    if not isinstance(fields, dict):
        raise Unprocessable(f"{part}: is not an object", hint=f'"{part}": {{"data": …}}')
    _require_known_fields(fields, _DATA_FIELDS, part)
    kind: Any = fields.get("type")
    if kind not in (None, "JSON", "STRING", "BINARY", *FORMATS):
        names = ", ".join(FORMATS)
        raise Unprocessable(
            f"{part}: type {_shortened(kind)} is not known", hint=f"JSON, STRING, BINARY, {names}"
        )
    if fields.get("schema") is not None:
        raise Unprocessable(f"{part}: a schema is registered first", hint="POST /subjects/<subject>/versions")
    if fields.get("subject_name_strategy") not in (None, "TOPIC_NAME"):
        raise Unprocessable(f"{part}: subject_name_strategy TOPIC_NAME is served, no other")
    numbers = {name: fields.get(name) for name in ("schema_id", "schema_version")}
    for name, number in numbers.items():
        if number is not None and (type(number) is not int or not 0 < number < 1 << 31):
            raise Unprocessable(f"{part}.{name}: {_shortened(number)} is not such a number")
    subject = fields.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise Unprocessable(f"{part}.subject: {_shortened(subject)} is not a name")
    names_one = any(each is not None for each in (*numbers.values(), subject))
    if names_one and kind not in (None, *FORMATS):
        raise Unprocessable(f"{part}: type {kind} has no schema")
    return Data(kind, fields.get("data"), numbers["schema_id"], numbers["schema_version"], subject)


def plain_bytes(requested: Data, part: str) -> bytes | None:
    """Encode data that needs no schema: JSON, STRING or BINARY. Raises Unprocessable."""
    if requested.data is None:
        return None
    if requested.type == "JSON":
        return as_json(requested.data, f"{part}.data")
    if requested.type == "BINARY":
        return _base64(requested.data, f"{part}.data")
    if not isinstance(requested.data, str):
        raise Unprocessable(f"{part}.data: is {_shortened(requested.data)}, type STRING requires a text")
    return requested.data.encode()


def as_json(value: Any, place: str) -> bytes:
    """Serialize a value. Raises Unprocessable if it is nested too deep to serialize; the parser accepts
    deeper nesting.
    """
    try:
        return dumped(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unprocessable(f"{place}: {error}", hint="nest it less deep") from None


def _base64(text: Any, place: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise Unprocessable(f"{place}: {_shortened(text)} is not base64") from None


def _require_known_fields(body: Mapping[str, Any], fields: tuple[str, ...], place: str) -> None:
    unknown = next((name for name in body if name not in fields), None)
    if unknown is not None:
        raise Unprocessable(
            f'{place}: field "{unknown[:80]}" is not known',
            hint=did_you_mean(unknown[:80], fields, f"known are {', '.join(fields)}"),
        )


def _shortened(value: Any) -> str:
    try:
        text = dumped(value).decode()
    except (TypeError, ValueError, RecursionError):
        return "nested too deep"
    return text if len(text) <= 60 else text[:57] + "…"


def refused_line(error: HubError) -> dict[str, Any]:
    """Build the answer line of a record that was not written or whose outcome is unknown."""
    line: dict[str, Any] = {"error_code": status_of(error), "message": error.message}
    if error.hint:
        line["hint"] = error.hint
    return {**line, "code": error.code, **error.details}
