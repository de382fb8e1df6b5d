"""[edge] confluent-kafka: execute rules with Confluent's own executors, on values in their format's form.

CEL and CEL_FIELD (cel-python) and JSONATA (jsonata-python) get the same values as in Confluent's
serializers: a dict for Avro and JSON Schema, a message for Protobuf. Tags of fields come from the schema's
text and its metadata. A rule gets the whole record as it will be written, with defaults of omitted fields.

Runs in a child process (``child.py``), because expressions are not trusted. Fetches nothing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Protocol

import fastavro
from confluent_kafka.schema_registry import Metadata, Schema
from confluent_kafka.schema_registry.common import avro as avro_walk
from confluent_kafka.schema_registry.common import json_schema as json_walk
from confluent_kafka.schema_registry.common import protobuf as protobuf_walk
from confluent_kafka.schema_registry.common.schema_registry_client import Rule as ConfluentRule
from confluent_kafka.schema_registry.common.serde import RuleContext
from confluent_kafka.schema_registry.rules.cel.cel_executor import CelExecutor
from confluent_kafka.schema_registry.rules.cel.cel_field_executor import CelFieldExecutor
from confluent_kafka.schema_registry.rules.jsonata.jsonata_executor import JsonataExecutor
from confluent_kafka.schema_registry.schema_registry_client import RuleMode
from confluent_kafka.schema_registry.serde import RuleError
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message
from referencing import Registry, Resource

from hub.schema_registry.codecs.avro_encoder import JsonEncoder
from hub.schema_registry.codecs.avro_validator import BrokenValue
from hub.schema_registry.codecs.misfit import Unfit
from hub.schema_registry.codecs.values import JsonText, indexes_of
from hub.schema_registry.compat.resolved_schema import SchemaSource
from hub.schema_registry.contracts.rule_calls import NO_KEYS, AskKey, RuleCall
from hub.schema_registry.contracts.rules import (
    DLQ_TOPIC,
    NOT_EXECUTABLE,
    Mode,
    RuleAborted,
    RulePlan,
    RuleRefused,
    executable_part,
    judged_by,
    must_be_executable,
    plan_of,
    run,
)
from hub.schema_registry.formats.avro.format import AvroSchema
from hub.schema_registry.formats.json_schema.schema import JsonSchema
from hub.schema_registry.formats.protobuf.schema import ProtobufSchema
from hub.schema_registry.model.data_contract import properties_of

_NOWHERE = SerializationContext("", MessageField.VALUE)
_UNWRITABLE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    ArithmeticError,
    EOFError,
)


VisitField = Callable[[str, frozenset[str], Any], Any]
"""(name, tags, value) of a field → its new value."""
_VISIT = ConfluentRule.from_dict({"name": "visit", "kind": "TRANSFORM", "mode": "WRITE", "type": "VISIT"})


class ValueForm(Protocol):
    """Form in which one schema's values are passed to rules."""

    prefix: int
    """Bytes of a body before the value: they are not encrypted with it."""

    def native(self, value: Any, place: str, most_steps: int) -> tuple[Any, bytes | None]:
        """Return the value as rules get it, and its bytes if it stays unchanged. Raises Unfit."""

    def decoded(self, data: bytes, start: int) -> Any:
        """Decode the body that begins at an offset. Raises BrokenValue."""

    def walked(self, context: RuleContext, transform: Any, value: Any) -> Any:
        """Apply a field rule to the value."""

    def body(self, value: Any, place: str) -> bytes:
        """Encode the result of the rules. Raises Unfit."""


class Contract:
    """One schema and its rules, prepared for many values. Not thread safe, except ``form`` and ``walked``.

    Raises InvalidSchema; RuleRefused for invalid rules.
    """

    def __init__(self, source: SchemaSource) -> None:
        parsed = source.parsed()
        if isinstance(parsed, AvroSchema):
            self.form: ValueForm = _AvroValues(parsed)
        else:
            self.form = _JsonValues(parsed) if isinstance(parsed, JsonSchema) else _ProtobufValues(parsed)
        self.source = source
        # The metadata that executors read; they only hash the text, once per value.
        metadata = Metadata.from_dict(dict(source.metadata)) if source.metadata else None
        self._target = Schema("", source.schema_type, [], metadata)
        self._executors = {
            each.type(): each for each in (CelExecutor(), CelFieldExecutor(), JsonataExecutor())
        }
        self._plans = {mode: plan_of(source.rule_set, mode) for mode in Mode}
        self._encoding = plan_of(source.rule_set, Mode.WRITE, "encodingRules")
        self._sealing = plan_of(source.rule_set, Mode.READ, "encodingRules")
        plans = (self._plans[Mode.WRITE], self._plans[Mode.READ], self._encoding, self._sealing)
        # Each list of rules as Confluent's executors read it, by the list.
        lists = (plan.source for plan in (*self._plans.values(), self._encoding, self._sealing))
        self._prepared = {id(each): [ConfluentRule.from_dict(dict(rule)) for rule in each] for each in lists}
        self.encrypts = any(each.encrypts for plan in plans for each in plan.rules)
        if self.encrypts:
            self._executors |= _encryption(lambda question: self._call.ask(question))
        self._call = NO_KEYS

    def write(self, value: Any, place: str, most_steps: int, call: RuleCall = NO_KEYS) -> bytes:
        """Return the body of a JSON value after the rules. Raises Unfit, RuleRefused."""
        plan = self._plans[Mode.WRITE]
        must_be_executable(plan, self._encoding, has_keys=True)
        native, body = self.form.native(value, place, most_steps)
        return self._written(plan, native, body, place, call)

    def write_body(self, body: bytes, place: str, call: RuleCall = NO_KEYS) -> bytes:
        """``write()`` for a value that is encoded already. Also raises BrokenValue."""
        plan = self._plans[Mode.WRITE]
        must_be_executable(plan, self._encoding, has_keys=True)
        return self._written(plan, self.form.decoded(body, 0), body, place, call)

    def _written(self, plan: RulePlan, native: Any, body: bytes | None, place: str, call: RuleCall) -> bytes:
        before = deepcopy(native) if body is not None else None
        after = self._run(plan, native, call)
        written = body if body is not None and after == before else self.form.body(after, place)
        if not self._encoding:
            return written
        start = self.form.prefix
        return written[:start] + bytes(self._run(self._encoding, written[start:], call))

    def opened(self, body: bytes, call: RuleCall) -> bytes:
        """Decrypt a stored body by its READ rules that decrypt, whatever their ``onFailure`` is; other rules
        are not executed. Raises RuleRefused, Unfit, BrokenValue.
        """
        start, read = self.form.prefix, self._plans[Mode.READ]
        if self._sealing:
            body = body[:start] + bytes(self._run(self._sealing, body[start:], call))
        active = tuple(each for each in read.active if read.every[each].type == "ENCRYPT")
        if not active:
            return body
        plan = RulePlan(Mode.READ, read.every, active, read.source)
        return self.form.body(self._run(plan, self.form.decoded(body, 0), call), "value")

    def walked(self, value: Any, visit: VisitField) -> Any:
        """Return a decoded value with each field, except records, replaced by the result of ``visit``."""
        context = RuleContext(
            None, _NOWHERE, None, self._target, "", RuleMode.WRITE, _VISIT, 0, [_VISIT], self._tags, None
        )

        def change(_context: RuleContext, field: Any, each: Any) -> Any:
            return visit(field.name, frozenset(field.tags), each)

        return self.form.walked(context, change, value)

    def refusal(self, data: bytes, start: int, call: RuleCall = NO_KEYS) -> str | None:
        """Return why a stored body breaks the rules; None if it does not, as far as can be checked.

        Checks the write conditions that still apply to stored values, and the read rules up to the first that
        cannot be executed. Raises BrokenValue.
        """
        write, read = self._plans[Mode.WRITE], executable_part(self._plans[Mode.READ])
        conditions = RulePlan(Mode.WRITE, write.every, judged_by(write), write.source)
        if self._encoding or not (conditions or read):
            return None
        value = self.form.decoded(data, start)
        try:
            self._run(conditions, value, call)
            self._run(read, value, call)
        except RuleRefused as refused:
            return refused.message
        return None

    def _run(self, plan: RulePlan, value: Any, call: RuleCall) -> Any:
        rules = self._prepared[id(plan.source)]
        mode = RuleMode(plan.mode.value)
        self._call = call

        def walk(context: RuleContext, transform: Any, message: Any) -> Any:
            return self.form.walked(context, transform, message)

        def execute(index: int, message: Any) -> Any:
            rule = plan.every[index]
            call.began(rule.name)
            context = RuleContext(
                *(None, _NOWHERE, None, self._target, call.subject, mode),
                *(rules[index], index, rules, self._tags, walk),
            )
            try:
                return self._executors[rule.type].transform(context, message)
            except SerializationError as error:
                raise RuleAborted(str(error)) from None
            except Exception as error:
                # No onFailure lets clear text pass; a text other than a rule's own may have some of it.
                if rule.encrypts and not isinstance(error, RuleAborted):
                    why = str(error) if isinstance(error, RuleError) else type(error).__name__
                    raise RuleAborted(why) from None
                raise

        try:
            return run(plan, value, execute)
        except RuleRefused as refused:
            if self.encrypts:
                refused.dlq_topic = None  # a copy would have the clear text
            if refused.dlq_topic == "":
                refused.dlq_topic = str(properties_of(self.source.metadata).get(DLQ_TOPIC) or "")
            raise

    @property
    def _tags(self) -> Mapping[str, set[str]] | None:
        return self.form.tags if isinstance(self.form, _AvroValues) else None


def _encryption(ask: AskKey) -> Mapping[str, Any]:
    """Return the executors of encryption. Raises RuleRefused if their packages are not installed."""
    try:
        from hub.schema_registry.contracts.encryption import encryption_executors
    except ImportError as error:
        raise RuleRefused(
            f"field encryption needs the package {error.name}, which is not installed",
            "",
            hint="pip install 'event-hub[encryption]'",
            code=NOT_EXECUTABLE,
        ) from None
    return encryption_executors(ask)


class _AvroValues:
    prefix = 0

    def __init__(self, parsed: AvroSchema) -> None:
        named: dict[str, Any] = {}
        for each in parsed.types:
            fastavro.parse_schema(each, named_schemas=named, _ignore_default_error=True)
        self._schema = fastavro.parse_schema(parsed.value, named_schemas=named, _ignore_default_error=True)
        self._encoder = JsonEncoder(parsed.value, parsed.types)
        self._expanded = fastavro.schema.expand_schema(
            fastavro.parse_schema(
                parsed.value, named_schemas=dict(named), expand=True, _ignore_default_error=True
            )
        )
        self.tags = avro_walk.get_inline_tags(self._expanded)

    def native(self, value: Any, place: str, most_steps: int) -> tuple[Any, bytes]:
        body = self._encoder.body(value, place, most_steps)
        try:
            return self.decoded(body, 0), body
        except BrokenValue as error:
            raise Unfit(f"{place}: {error}") from None

    def decoded(self, data: bytes, start: int) -> Any:
        try:
            read = fastavro.schemaless_reader(
                io.BytesIO(data[start:]),
                self._schema,
                None,
                return_record_name=True,
                return_record_name_override=True,
            )
        except _UNWRITABLE as error:
            raise BrokenValue(f"no value for rules: {str(error)[:200]}", start) from None
        return _with_types(read)

    def walked(self, context: RuleContext, transform: Any, value: Any) -> Any:
        return avro_walk.transform(context, self._expanded, value, transform)

    def body(self, value: Any, place: str) -> bytes:
        written = io.BytesIO()
        try:
            fastavro.schemaless_writer(written, self._schema, _plain(value))
        except _UNWRITABLE as error:
            raise Unfit(
                f"{place}: what its rules made of it does not fit the schema: {str(error)[:300]}"
            ) from None
        return written.getvalue()


class _JsonValues:
    prefix = 0

    def __init__(self, parsed: JsonSchema) -> None:
        self._text = JsonText(parsed)
        self._schema = parsed.raw
        default = json_walk.DEFAULT_SPEC
        named = [(name, Resource.from_contents(each.raw, default)) for name, each in parsed.named.items()]
        self._registry: Any = Registry().with_resources(named)
        self._resolver = self._registry.resolver_with_root(Resource.from_contents(self._schema, default))

    def native(self, value: Any, place: str, most_steps: int) -> tuple[Any, None]:
        return value, None

    def decoded(self, data: bytes, start: int) -> Any:
        return self._text.exact(data, start)

    def walked(self, context: RuleContext, transform: Any, value: Any) -> Any:
        return json_walk.transform(
            context, self._schema, self._registry, self._resolver, "$", value, transform
        )

    def body(self, value: Any, place: str) -> bytes:
        return self._text.body(_plain(value), place)


class _ProtobufValues:
    """Protobuf values in a pool like Confluent's, which has the options that hold tags of fields."""

    prefix = 1  # the index of the message's type

    def __init__(self, parsed: ProtobufSchema) -> None:
        self._pool = descriptor_pool.DescriptorPool()
        protobuf_walk._init_pool(self._pool)
        for each in parsed.imports:
            if not protobuf_walk._is_builtin(each.name):
                self._pool.Add(each)
        self._file = self._pool.AddSerializedFile(parsed.file.SerializeToString())
        self._descriptors = [self._file.message_types_by_name[each.name] for each in parsed.file.message_type]

    def native(self, value: Any, place: str, most_steps: int) -> tuple[Message, None]:
        message: Message = message_factory.GetMessageClass(self._descriptors[0])()
        if not isinstance(value, dict):
            raise Unfit(f"{place}: a message is a JSON object")
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool, max_recursion_depth=100)
        except (json_format.ParseError, RecursionError, *_UNWRITABLE) as error:
            raise Unfit(f"{place}: {str(error)[:300]}") from None
        return message, None

    def decoded(self, data: bytes, start: int) -> Message:
        indexes, at = indexes_of(data, start)
        try:
            found = self._descriptors[indexes[0]]
            for each in indexes[1:]:
                found = found.nested_types[each]
            message: Message = message_factory.GetMessageClass(found)()
            message.ParseFromString(data[at:])
        except (IndexError, RecursionError, DecodeError) as error:
            raise BrokenValue(f"no message for rules: {str(error)[:200]}", start) from None
        return message

    def walked(self, context: RuleContext, transform: Any, value: Any) -> Any:
        return protobuf_walk.transform(context, value.DESCRIPTOR, value, transform)

    def body(self, value: Any, place: str) -> bytes:
        if not isinstance(value, Message):
            raise Unfit(f"{place}: its rules made a {type(value).__name__} of it, which is not a message")
        try:
            return b"\x00" + value.SerializeToString()
        except EncodeError as error:  # proto2's required fields
            raise Unfit(f"{place}: {error}") from None


def _with_types(value: Any) -> Any:
    """Put the type name of union records among their fields, so that rules can read it.

    A record in a union of several is a pair (name, fields); the writer takes the same branch.
    """
    match value:
        case (str() as name, dict() as fields):
            return {"-type": name, **{key: _with_types(each) for key, each in fields.items()}}
        case dict():
            return {key: _with_types(each) for key, each in value.items()}
        case list():
            return [_with_types(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    """Convert CEL's values to Python's: a writer distinguishes booleans from numbers by type."""
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_plain(each) for each in value)
    if not type(value).__module__.startswith("celpy"):
        return value
    if type(value).__name__ == "BoolType":
        return bool(value)
    for kind in (int, float, str, bytes):
        if isinstance(value, kind):
            return kind(value)  # type: ignore[arg-type]
    return value
