"""[core] Violations of a schema's effective rules: the problem, who set the rule, and the smallest fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hub.schema_registry.describe import SchemaField, SchemaType, SchemaView
from hub.schema_registry.policy.label_patterns import fits, labels_of
from hub.schema_registry.policy.policy_rules import ABSENT, ANYONE, UNLIMITED, Value, matcher, text_of


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """A violated rule. ``rule`` is its key, ``severity`` is ``block`` or ``warn``.

    ``path`` is the field's dotted path or the type's name, "" for the whole schema.
    """

    rule: str
    set_by: str
    path: str
    what: str
    fix: str
    severity: str = "block"

    def __str__(self) -> str:
        place = f" at {self.path}" if self.path else ""
        by = f" (set by {self.set_by})" if self.set_by else ""
        return f"{self.rule}{place}: {self.what}{by}; fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class CheckContext:
    """Facts that a schema's text lacks.

    ``tags`` are Confluent's metadata tags by a field's full name (``com.acme.Order.email``, also
    ``**.email``). ``is_new`` is False when the same schema is registered already, so that no version is made.
    """

    principal: str = ""
    teams: frozenset[str] = frozenset()
    owner: str = ""
    tags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_new: bool = True


Found = tuple[str, str, str]  # path, what, fix


def violations(
    rules: Mapping[str, tuple[Value, str]],
    subject: str,
    is_key: bool,
    schema_type: str,
    view: SchemaView | None,
    context: CheckContext,
) -> list[PolicyViolation]:
    """Return every violation. ``rules``: (value, who set it) by key, with ``severity.<rule>`` keys.

    Required fields are not checked for keys.
    """
    found = []
    for key, (value, set_by) in rules.items():
        rule, _, rest = key.partition(".")
        if rule in _ABOUT_THE_SCHEMA and (view is None or (rule == "fields" and is_key)):
            continue
        severity = str(rules.get(f"severity.{rule}", ("block", ""))[0])
        if rule in _ABOUT_THE_REQUEST:
            broken = _ABOUT_THE_REQUEST[rule](value, subject, schema_type, context)
        elif rule in _ABOUT_THE_SCHEMA:
            broken = _ABOUT_THE_SCHEMA[rule](value, rest, view, context)
        else:
            continue  # the registry checks the level; a severity is not a rule
        found += [PolicyViolation(key, set_by, *each, severity) for each in broken]
    return found


# ---- of the request


def _formats(value: frozenset[str], subject: str, schema_type: str, context: CheckContext) -> Iterator[Found]:
    if schema_type not in value:
        allowed = text_of("formats", value)
        yield (
            "",
            f"a schema of type {schema_type} is not allowed, only {allowed}",
            f"register it as {allowed}",
        )


def _owner(value: str, subject: str, schema_type: str, context: CheckContext) -> Iterator[Found]:
    if value == "required" and not context.owner:
        yield (
            "",
            f'subject "{subject}" has no owner',
            (
                "say `owner:` of the topic or above it in topics.yaml, or the property `owner` of "
                "the schema's metadata"
            ),
        )


def _freeze(value: bool, subject: str, schema_type: str, context: CheckContext) -> Iterator[Found]:
    if value and context.is_new:
        yield (
            "",
            f'subject "{subject}" is frozen: no new versions',
            "continue with the latest version, or remove the freeze",
        )


def _registrars(
    value: frozenset[str], subject: str, schema_type: str, context: CheckContext
) -> Iterator[Found]:
    teams = {f"team:{team}" for team in context.teams}
    if value == ANYONE or value & {context.principal, *teams}:
        return
    who = f'"{context.principal}"' if context.principal else "a caller without a name"
    allowed = text_of("registrars", value)
    yield "", f'{who} may not register under "{subject}", only {allowed}', f"ask {allowed} to register it"


# ---- of the schema


def _fields(value: frozenset[str], path: str, view: SchemaView, context: CheckContext) -> Iterator[Found]:
    if ABSENT in value:
        return
    wanted = text_of("fields", value)
    first_type = wanted.split(" ")[0]
    if not view.roots:
        yield (
            path,
            f'the schema is not a record, so field "{path}" is missing',
            "make it a record with the field",
        )
    for root in view.roots:
        there = view.find(root, path)
        if there is None:
            yield (
                path,
                f'record "{root}" has no field "{path}" ({wanted})',
                _added(view.schema_type, path, first_type),
            )
        elif there.type not in value:
            yield (
                path,
                f'field "{path}" of "{root}" is {_a(there)}, and must be {wanted}',
                f"make it {first_type}",
            )
        elif there.shape.optional:
            yield path, f'field "{path}" of "{root}" may be missing or null', _REQUIRED[view.schema_type]


_REQUIRED = {
    "AVRO": 'take "null" out of its union',
    "JSON": 'name it in "required", and take "null" out of its types',
    "PROTOBUF": "remove the word `optional` (in proto2: write `required`), and move it out of its oneof",
}
_AVRO = {
    "timestamp": '{"type": "long", "logicalType": "timestamp-millis"}',
    "date": '{"type": "int", "logicalType": "date"}',
    "time": '{"type": "int", "logicalType": "time-millis"}',
    "uuid": '{"type": "string", "logicalType": "uuid"}',
}
_JSON = {
    "timestamp": '{"type": "string", "format": "date-time"}',
    "date": '{"type": "string", "format": "date"}',
    "time": '{"type": "string", "format": "time"}',
    "uuid": '{"type": "string", "format": "uuid"}',
    **dict.fromkeys(("int", "long"), '{"type": "integer"}'),
    **dict.fromkeys(("float", "double"), '{"type": "number"}'),
    "string": '{"type": "string"}',
    "boolean": '{"type": "boolean"}',
}
_PROTOBUF = {
    "timestamp": "google.protobuf.Timestamp",
    "date": "google.type.Date",
    "long": "int64",
    "int": "int32",
    "boolean": "bool",
    **{name: name for name in ("string", "double", "float", "bytes")},
}


def _added(schema_type: str, path: str, wanted: str) -> str:
    name = path.rpartition(".")[2]
    match schema_type:
        case "AVRO" if wanted in (*_AVRO, "string", "int", "long", "float", "double", "boolean", "bytes"):
            shown = _AVRO.get(wanted, f'"{wanted}"')
            return f'add {{"name": "{name}", "type": {shown}}}'
        case "JSON" if wanted in _JSON:
            return f'add "{name}": {_JSON[wanted]} to "properties", and "{name}" to "required"'
        case "PROTOBUF" if wanted in _PROTOBUF:
            return f"add `{_PROTOBUF[wanted]} {name} = …;` with a number that is free"
    return f'add "{name}" as {wanted}'


def _a(there: SchemaField) -> str:
    return f"{there.type} ({there.shape.logical})" if there.shape.logical else there.type


def _naming(value: frozenset[str], kind: str, view: SchemaView, context: CheckContext) -> Iterator[Found]:
    for path, noun, name in _NAMES[kind](view):
        for pattern in sorted(value):
            if not matcher(pattern)(name):
                guess = respelled(name, pattern)
                fix = f'call it "{guess}"' if guess else f"choose a name that fits {pattern}"
                yield path, f'{noun} "{name[:80]}" is not {_pattern_text(pattern)}', fix


def _pattern_text(pattern: str) -> str:
    return pattern if pattern in _SPELLINGS else f"so that the regex {pattern} matches"


def _names_of(kind: str) -> Callable[[SchemaView], Iterator[tuple[str, str, str]]]:
    def names(view: SchemaView) -> Iterator[tuple[str, str, str]]:
        for each in view.own_types:
            if each.kind == kind and each.named:
                yield each.name, kind, each.simple_name

    return names


def _field_names(view: SchemaView) -> Iterator[tuple[str, str, str]]:
    return ((each.path, "field", each.name) for _, each in view.fields())


def _symbols(view: SchemaView) -> Iterator[tuple[str, str, str]]:
    return (
        (each.name, "symbol", symbol)
        for each in view.own_types
        if each.kind == "enum"
        for symbol in each.symbols
    )


_NAMES = {
    "records": _names_of("record"),
    "enums": _names_of("enum"),
    "fields": _field_names,
    "symbols": _symbols,
}


def _name_parts(name: str) -> list[str]:
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)


_SPELLINGS: Mapping[str, Callable[[list[str]], str]] = {
    "snake_case": lambda words: "_".join(word.lower() for word in words),
    "UPPER_CASE": lambda words: "_".join(word.upper() for word in words),
    "PascalCase": lambda words: "".join(word.capitalize() for word in words),
    "camelCase": lambda words: "".join(
        word.capitalize() if at else word.lower() for at, word in enumerate(words)
    ),
}


def respelled(name: str, preset: str) -> str | None:
    """Return the name in the preset's spelling; None when there is none.

    >>> respelled("customerID", "snake_case"), respelled("order_id", "camelCase")
    ('customer_id', 'orderId')
    """
    if preset not in _SPELLINGS or len(name) > 255:
        return None
    made = _SPELLINGS[preset](_name_parts(name))
    return made if matcher(preset)(made) else None


def _doc(value: str, _: str, view: SchemaView, context: CheckContext) -> Iterator[Found]:
    if value == "optional":
        return
    where = {"JSON": 'a "description"', "PROTOBUF": "a comment before it"}.get(view.schema_type, 'a "doc"')
    for each in view.own_types:
        is_record = each.kind == "record" and (each.named or each.name in view.roots)
        if is_record and not each.doc.strip():
            yield each.name, f'record "{each.name}" has no doc', f"add {where}"
    for _record, each_field in view.fields() if value == "every_field" else ():
        if not each_field.doc.strip():
            yield each_field.path, f'field "{each_field.path}" has no doc', f"add {where}"


def _pii(value: frozenset[str], pattern: str, view: SchemaView, context: CheckContext) -> Iterator[Found]:
    is_personal = matcher(pattern, anywhere=True)
    for record, each in view.fields():
        if not is_personal(each.name):
            continue
        missing = value - each.tags - tags_beside(context.tags, record, each)
        if missing:
            listed = ", ".join(f'"{tag}"' for tag in sorted(missing))
            fix = (
                f"add [(confluent.field_meta).tags = {listed}]"
                if view.schema_type == "PROTOBUF"
                else f'add "confluent:tags": [{listed}]'
            )
            yield (
                each.path,
                f'field "{each.path}" looks like personal data and lacks the tag {listed}',
                f'{fix}, or tag "{record.name}.{each.name}" in the metadata',
            )


def tags_beside(tags: Mapping[str, Sequence[str]], record: SchemaType, each: SchemaField) -> set[str]:
    """Return the tags that a schema's metadata gives a field, by the field's full name or its path."""
    names = (labels_of(f"{record.name}.{each.name}"), labels_of(each.path))
    return {
        tag
        for pattern, field_tags in tags.items()
        if any(fits(labels_of(pattern), name) for name in names)
        for tag in field_tags
    }


def _max_fields(value: int, _: str, view: SchemaView, context: CheckContext) -> Iterator[Found]:
    count = sum(1 for _ in view.fields())
    if value != UNLIMITED and count > value:
        yield (
            "",
            f"the schema has {count} fields, {value} are allowed",
            "split it, or refer to schemas of their own",
        )


_ABOUT_THE_REQUEST: Mapping[str, Callable[[Any, str, str, CheckContext], Iterator[Found]]] = {
    "formats": _formats,
    "owner": _owner,
    "freeze": _freeze,
    "registrars": _registrars,
}
_ABOUT_THE_SCHEMA: Mapping[str, Callable[[Any, str, Any, CheckContext], Iterator[Found]]] = {
    "fields": _fields,
    "naming": _naming,
    "doc": _doc,
    "pii": _pii,
    "max_fields": _max_fields,
}
