"""[core] Form to produce one message: the fields of the topic's schema, or JSON; the form as a request of the
gateway, and as a command.

The gateway decides everything: schema, data rules, encryption, quotas, ownership. Nothing of it is repeated.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hub.errors import CallerError, HubError
from hub.schema_registry.describe import SchemaField, SchemaView
from hub.topics.browse.rendered import Message
from hub.topics.tree.key_fields import at_path

MOST_FIELDS: Final = 200
MOST_FORM_BYTES: Final = 4 << 20
_TEXTS: Final = ("string", "uuid", "bytes", "date", "time", "decimal")
_NUMBERS: Final = ("int", "long", "float", "double")
TYPES: Final = ("JSON", "STRING", "BINARY")
_FIELD: Final = "field."


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of the form. ``form``: text, number, choice or json. ``options``: of a choice. ``empty``:
    meaning of an empty input. ``required``: an empty input is refused."""

    name: str
    type: str
    form: str
    options: tuple[str, ...] = ()
    empty: str = ""
    required: bool = False
    doc: str = ""

    @property
    def input(self) -> str:
        return _FIELD + self.name


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """Subjects of a topic that have schemas ("": none), and the type of the newest one of its values.
    ``trouble``: why the form cannot read it."""

    value: str = ""
    key: str = ""
    schema_type: str = ""
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ProducePage:
    """Form for one message of a topic.

    ``mode``: "fields" or "json". ``values``: inputs by name. ``notes``: on a message that is sent again.
    ``once``: id of the form, so that it is carried out once. ``sent``: (partition, offset) of the message
    that was just written. ``error``: refusal of the last one. ``command``: the equal one, if requested.
    """

    topic: str
    partitions: int
    key_field: str
    schemas: TopicSchemas
    mode: str
    fields: tuple[FormField, ...]
    values: Mapping[str, str]
    notes: tuple[str, ...] = ()
    once: str = ""
    sent: tuple[int, int] | None = None
    error: HubError | None = None
    command: str = ""


def form_fields(view: SchemaView | None) -> tuple[FormField, ...]:
    """Return the fields of the only record of a schema; () where the schema is none, or has too many."""
    if view is None or len(view.roots) != 1:
        return ()
    fields = view.types[view.roots[0]].fields
    if len(fields) > MOST_FIELDS:
        return ()
    return tuple(_field(view, each) for each in fields)


def _field(view: SchemaView, field: SchemaField) -> FormField:
    shape = field.shape
    form, options = "json", tuple[str, ...]()
    if shape.type == "enum":
        symbols = [view.types[name].symbols for name in shape.of if name in view.types]
        if symbols:
            form, options = "choice", symbols[0]
    elif shape.type == "boolean":
        form, options = "choice", ("true", "false")
    elif shape.type in _TEXTS or shape.type == "timestamp":
        form = "text"
    elif shape.type in _NUMBERS:
        form = "number"
    has_default = field.default is not None
    empty = f"default {field.default}" if has_default else "null" if shape.optional else ""
    required = not empty and shape.type != "string" and view.schema_type != "PROTOBUF"
    kind = shape.type + (f" of {', '.join(shape.of)}" if shape.of and form == "json" else "")
    kind += f" ({shape.logical})" if shape.logical else ""
    return FormField(field.name, kind, form, options, empty, required, field.doc)


def value_of(schemas: TopicSchemas, fields: Sequence[FormField], values: Mapping[str, str]) -> Any:
    """Return the value of a form with fields as JSON. An empty input is the default, null, or absent. Raises
    CallerError naming the field."""
    value: dict[str, Any] = {}
    for each in fields:
        text = values.get(each.input, "")
        if text.strip() or (text and each.form == "text"):
            value[each.name] = _typed(each, text)
        elif each.empty == "null" and schemas.schema_type == "AVRO":
            value[each.name] = None
        elif not each.empty and each.type == "string" and schemas.schema_type != "PROTOBUF":
            value[each.name] = ""
    return value


def _typed(field: FormField, text: str) -> Any:
    if field.form == "text" and not (field.type.startswith("timestamp") and text.strip().isdecimal()):
        return text
    if field.form == "choice" and field.type != "boolean":
        return text
    return json_of(text, f'field "{field.name}"')


def json_of(text: str, what: str) -> Any:
    """Parse JSON that a person typed. Raises CallerError."""
    try:
        return json.loads(text, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise CallerError(f"{what}: not JSON: {str(error)[:200]}", hint='texts are quoted: "text"') from None


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; write it as a text")


def record_of(page: ProducePage) -> dict[str, Any]:
    """Return the form as a record of the gateway (API v3). Raises CallerError naming the input."""
    values = page.values
    value: Any = None
    if not values.get("tombstone"):
        if page.mode == "fields":
            value = value_of(page.schemas, page.fields, values)
        elif values.get("type") in TYPES[1:]:
            value = values.get("value", "")
        else:
            value = json_of(values.get("value", ""), "value")
    record: dict[str, Any] = {}
    if value is not None or page.mode != "fields":
        record["value"] = (
            None if values.get("tombstone") else _data(value, values.get("type", ""), page.schemas.value)
        )
    key = values.get("key", "") or _declared(page.key_field, value)
    if key:
        record["key"] = {"data": _loose(key)} if page.schemas.key else {"type": "STRING", "data": key}
    partition = values.get("partition", "")
    if partition:
        if not partition.isdecimal() or int(partition) >= page.partitions:
            raise CallerError(
                f'"{partition[:20]}" is not a partition', hint=f"use 0 to {page.partitions - 1}"
            )
        record["partition_id"] = int(partition)
    headers = headers_of(values.get("headers", ""))
    if headers:
        record["headers"] = headers
    return record


def _data(value: Any, type: str, subject: str) -> dict[str, Any]:
    return {"data": value} if subject else {"type": type if type in TYPES else "JSON", "data": value}


def _loose(text: str) -> Any:
    """Return a key of a schema: JSON if it is, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _declared(key_field: str, value: Any) -> str:
    """Return the key that topics.yaml declares to be a field of the value."""
    found = at_path(value, key_field) if key_field and isinstance(value, Mapping) else None
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""


def headers_of(text: str) -> list[dict[str, str]]:
    """Parse lines ``name: value`` into headers of the gateway. Raises CallerError."""
    found = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise CallerError(
                f'header "{line[:60]}": a colon is missing', hint="one header a line: name: value"
            )
        found.append({"name": name.strip(), "value": base64.b64encode(value.strip().encode()).decode()})
    return found


def command_of(topic: str, record: Mapping[str, Any], base_url: str) -> str:
    """Return a command that writes the same record."""
    key, value = record.get("key"), record.get("value")
    data = None if value is None else value["data"]
    is_event = value is None or (isinstance(data, dict) and "type" not in value)
    if is_event and set(record) <= {"key", "value"} and key is not None and isinstance(key["data"], str):
        event = json.dumps(data, ensure_ascii=False)
        return shlex.join(["hub", "topic", "publish", topic, "-k", key["data"], "-j", event])
    url = f"{base_url}/v3/clusters/-/topics/{topic}/records"
    body = json.dumps(record, ensure_ascii=False)
    return shlex.join(["curl", "-X", "POST", url, "-H", "content-type: application/json", "-d", body])


def again(message: Message) -> tuple[dict[str, str], list[str]]:
    """Return the inputs for a message that is sent again, and notes on parts that are left out. Raises
    CallerError where a form cannot hold it."""
    value, notes = message.value, list[str]()
    encrypted = value.schema.encrypted if value.schema is not None else ()
    reasons = [
        (value.problem, f"its value is not decoded: {value.problem}"),
        (value.cut or message.key.cut, "it is longer than the form shows"),
        (encrypted, f"its fields {', '.join(encrypted)} are encrypted"),
        ("hex" in (value.form, message.key.form), "its bytes are not text"),
        (message.key.problem, "its key is not decoded"),
    ]
    for applies, why in reasons:
        if applies:
            raise CallerError(f"message {message.offset} cannot be sent again here: {why}")
    values = {"mode": "json", "partition": str(message.partition)}
    if value.form == "null":
        values["tombstone"] = "1"
    else:
        values["value"] = value.text
        values["type"] = "JSON" if value.form == "json" else "STRING"
    if message.key.form != "null":
        values["key"] = message.key.text
    lines = []
    for name, each in message.headers:
        if name.startswith("hub.") or each.form == "hex" or each.cut or "\n" in each.text:
            notes.append(f"Header {name} is left out: the hub's own, or no text.")
        else:
            lines.append(f"{name}: {each.text if each.form != 'null' else ''}")
    values["headers"] = "\n".join(lines)
    return values, notes
